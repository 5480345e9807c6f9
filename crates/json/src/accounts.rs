//! Accounts of groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, TagFunction, Text, Tool};

/// `memtrace accounts --format json` writes this object.
///
/// CSV has one line for each account, with a column for each key and for each number of an account. The last column,
/// `samplers`, has the names of the samplers that the account can have blocks from, separated by blanks: its numbers
/// are estimates. It is empty if all numbers are exact. An account of several processes has the samplers of all
/// processes. CSV has no total, losses or notes. An apostrophe precedes names that begin with `=`, `+`, `-` or `@`,
/// because spreadsheets would take them for formulas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accounts<'a> {
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// `accounts`.
    pub kind: Text<'a>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Keys that group the accounts: one or two keys of `--by`.
    pub keys: Vec<Text<'a>>,
    /// Duration of the trace.
    pub elapsed_seconds: f64,
    /// Sum of all accounts.
    pub total: AccountNumbers,
    /// Number of lost events by [reason](#json-of-a-report), without zeros.
    pub losses: Object<'a, u64>,
    /// Only with functions that set tags, at the end of the trace: the calls of each function, in the order of the command
    /// line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tag_functions: Vec<TagFunction<'a>>,
    /// Notes for the reader.
    pub notes: Vec<Text<'a>>,
    /// The groups.
    pub accounts: Vec<Account<'a>>,
}

/// Account of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Account<'a> {
    /// Names of the group, one for each of the `keys`.
    pub names: Vec<Text<'a>>,
    /// Numbers of the account.
    #[serde(flatten)]
    pub numbers: AccountNumbers,
}

/// Numbers of an account.
///
/// `current_bytes` is `alloc_bytes` - `free_bytes` - `exit_bytes` - `discarded_bytes`. The water marks, `peak_at_ms`,
/// the frees by others and `unmatched_frees` are `null` with the key `object`, and with `tag` by rules. Bytes and
/// blocks reach their water marks at different times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct AccountNumbers {
    /// Live bytes at the end of the trace.
    pub current_bytes: u64,
    /// Live blocks at the end of the trace.
    pub current_count: u64,
    /// Lower bound of the high-water mark of the live bytes. Equal to the upper bound if the mark is exact.
    pub high_bytes_at_least: Option<u64>,
    /// Lower bound of the high-water mark of the live blocks.
    pub high_count_at_least: Option<u64>,
    /// Upper bound of the high-water mark of the live bytes.
    pub high_bytes_at_most: Option<u64>,
    /// Upper bound of the high-water mark of the live blocks.
    pub high_count_at_most: Option<u64>,
    /// Lower bound of the low-water mark of the live bytes.
    pub low_bytes_at_least: Option<u64>,
    /// Lower bound of the low-water mark of the live blocks.
    pub low_count_at_least: Option<u64>,
    /// Upper bound of the low-water mark of the live bytes.
    pub low_bytes_at_most: Option<u64>,
    /// Upper bound of the low-water mark of the live blocks.
    pub low_count_at_most: Option<u64>,
    /// Bytes allocated since the start of the trace.
    pub alloc_bytes: u64,
    /// Blocks of `alloc_bytes`.
    pub alloc_count: u64,
    /// Bytes freed since the start of the trace.
    pub free_bytes: u64,
    /// Blocks of `free_bytes`.
    pub free_count: u64,
    /// Part of `free_bytes` that another thread than the allocating thread freed.
    pub free_by_others_bytes: Option<u64>,
    /// Blocks of `free_by_others_bytes`.
    pub free_by_others_count: Option<u64>,
    /// Bytes that processes held when they exited.
    pub exit_bytes: u64,
    /// Blocks of `exit_bytes`.
    pub exit_count: u64,
    /// Bytes that processes held when they called exec.
    pub discarded_bytes: u64,
    /// Blocks of `discarded_bytes`.
    pub discarded_count: u64,
    /// Frees of unknown blocks: allocated before the trace or by the parent of a forked process, or filtered. They
    /// count for the freeing thread.
    pub unmatched_frees: Option<u64>,
    /// Time from the start of the trace to the high-water mark of the live bytes. For a group of several accounts, it
    /// is the time of the account that rose most.
    pub peak_at_ms: Option<u64>,
}
