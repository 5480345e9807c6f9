//! Accounts of groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, Text, Tool};

/// `memtrace accounts --format json` writes this object.
///
/// CSV has one line for each account, with a column for each key and for each number of an account. It has no total,
/// losses or notes. Names in it that begin with `=`, `+`, `-` or `@` have an apostrophe before them, since spreadsheets
/// would take them for formulas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accounts<'a> {
    /// Program that wrote it.
    pub tool: Tool<'a>,
    /// `accounts`.
    pub kind: Text<'a>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Keys by which accounts are grouped: one or two of those of `--by`.
    pub keys: Vec<Text<'a>>,
    /// Duration of the trace.
    pub elapsed_seconds: f64,
    /// Sum of all accounts.
    pub total: AccountNumbers,
    /// Numbers of [losses](#json-of-a-report) by reason, without zeros.
    pub losses: Object<'a, u64>,
    /// Notes for the reader.
    pub notes: Vec<Text<'a>>,
    /// The groups.
    pub accounts: Vec<Account<'a>>,
}

/// Account of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Account<'a> {
    /// Name for each of the `keys`.
    pub names: Vec<Text<'a>>,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: AccountNumbers,
}

/// Numbers of an account.
///
/// `current_bytes` is `alloc_bytes` - `free_bytes` - `exit_bytes` - `discarded_bytes`. The water marks, and the frees by
/// others, are `null` with the key `object`, and with `tag` by rules. Bytes and blocks have their marks at different
/// times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct AccountNumbers {
    /// Live bytes at the end of the trace.
    pub current_bytes: u64,
    /// Live blocks at the end of the trace.
    pub current_count: u64,
    /// Lower bound of the high-water mark of the live bytes; equal to the upper one if it is exact.
    pub high_bytes_at_least: Option<u64>,
    /// The same for blocks.
    pub high_count_at_least: Option<u64>,
    /// Upper bound of the high-water mark of the live bytes.
    pub high_bytes_at_most: Option<u64>,
    /// The same for blocks.
    pub high_count_at_most: Option<u64>,
    /// Lower bound of the low-water mark of the live bytes.
    pub low_bytes_at_least: Option<u64>,
    /// The same for blocks.
    pub low_count_at_least: Option<u64>,
    /// Upper bound of the low-water mark of the live bytes.
    pub low_bytes_at_most: Option<u64>,
    /// The same for blocks.
    pub low_count_at_most: Option<u64>,
    /// Allocated since the start of the trace.
    pub alloc_bytes: u64,
    /// Blocks of `alloc_bytes`.
    pub alloc_count: u64,
    /// Freed since the start of the trace.
    pub free_bytes: u64,
    /// Blocks of `free_bytes`.
    pub free_count: u64,
    /// The part of `free_bytes` that another thread than the allocating one has freed.
    pub free_by_others_bytes: Option<u64>,
    /// Blocks of `free_by_others_bytes`.
    pub free_by_others_count: Option<u64>,
    /// Held by processes when they exited.
    pub exit_bytes: u64,
    /// Blocks of `exit_bytes`.
    pub exit_count: u64,
    /// Held by processes when they called exec.
    pub discarded_bytes: u64,
    /// Blocks of `discarded_bytes`.
    pub discarded_count: u64,
    /// Frees of unknown blocks: from before the trace, of the parent of a forked process, or filtered. They count for the
    /// freeing thread.
    pub unmatched_frees: Option<u64>,
    /// Time of the highest amount of bytes since the start of the trace; for a group of several accounts, that of the
    /// account that rose most.
    pub peak_at_ms: Option<u64>,
}
