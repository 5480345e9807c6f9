//! Calls of functions that set tags.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Text;

/// Calls of a function of `--tag-from`, or of a function of `--hook` with a tag, by the traced processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TagFunction<'a> {
    /// The function with its effect, as it was given: `set=pthread_setspecific(id=arg1,if=arg0==7)`.
    pub rule: Text<'a>,
    /// Number of calls. Inlined calls are not counted.
    pub calls: u64,
    /// Number of calls that changed a tag: the condition was met; with `within`, a function after `within` was being called.
    pub effective_calls: u64,
    /// Only with a condition: index of the argument that it tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested_argument: Option<u8>,
    /// Only with a condition: the first distinct values of the argument, at most eight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested_values: Option<Vec<TestedValue>>,
    /// Only with a condition: number of calls with other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_values_calls: Option<u64>,
}

/// A value of the argument that a condition tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestedValue {
    /// The lower 32 bits of the argument.
    pub value: u32,
    /// Number of calls with this value.
    pub calls: u64,
}
