//! Text of options: rules of tags, conditions of the thread monitor, hooks and functions of tags.

#![no_main]

use std::str::FromStr as _;

use libfuzzer_sys::fuzz_target;
use memtrace_history::tags::TagRules;
use memtrace_history::triggers::Condition;

fuzz_target!(|text: &str| {
    let _ = TagRules::parse(text);
    let _ = Condition::from_str(text);
    let accepts = |option: &str, text: &str| {
        let _ = memtrace::cli::accepts(["memtrace", "--pid", "1", option, text].map(Into::into));
    };
    for option in ["--hook", "--tag-from", "--span", "--size", "--older"] {
        accepts(option, text);
    }
    for argument in ["id", "name", "if"] {
        accepts("--tag-from", &format!("set=f({argument}={text})"));
    }
    accepts("--tag-from", &format!("get=f()->ret,within={text}"));
});
