//! Parsers of lists of functions, and of the arguments of these functions, such as `arg0`.

use memtrace_model::TagValue;

/// Index of the last argument that is passed in a register (System V ABI, AMD64 supplement, 3.2.3).
const LAST_ARGUMENT: u8 = 5;

/// Splits a list of functions at the commas outside of parentheses.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut depth = 0u32;
    let separates = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(separates).map(str::trim).collect()
}

/// Parses `argN`. Returns the index of the argument.
pub(crate) fn argument(text: &str) -> Result<u8, String> {
    let number = text.trim().strip_prefix("arg").and_then(|number| number.parse().ok());
    number
        .filter(|number| *number <= LAST_ARGUMENT)
        .ok_or_else(|| format!("`{}` is not an argument: use arg0 to arg{LAST_ARGUMENT}", text.trim()))
}

/// Parses `argN`, or `argN:32` for a number of 32 bits. Returns the index of the argument, and the kind of its value.
pub(crate) fn number(text: &str) -> Result<(u8, TagValue), String> {
    match text.trim().strip_suffix(":32") {
        Some(text) => Ok((argument(text)?, TagValue::Half)),
        None => Ok((argument(text)?, TagValue::Word)),
    }
}
