//! Calls of functions that change tags, as rows of a history.
//!
//! A text has the number of calls, the number of effective calls, the tested argument and the rule, with spaces between
//! them: `2001 0 0,0:1,1:2000,others:0 set=f(id=arg1,if=arg0==7)`. The tested argument is `-` without a condition.

use memtrace_model::{TagFunctionCalls, TestedArgument};

use super::row::text;
use crate::interval::Fact;

/// Topic of the facts.
pub(super) const TOPIC: &str = "tag_function";

/// Prefix of the number of calls with other values.
const OTHERS: &str = "others:";

/// Returns a fact for each function.
pub(super) fn facts(functions: &[TagFunctionCalls]) -> impl Iterator<Item = Fact> {
    // Leading zeros keep the order, because items are sorted as text.
    functions.iter().enumerate().map(|(index, function)| text(TOPIC, format!("{index:04}"), &write(function)))
}

fn write(function: &TagFunctionCalls) -> String {
    let TagFunctionCalls { rule, calls, effective, tested } = function;
    let tested = tested.as_ref().map_or_else(|| String::from("-"), write_tested);
    format!("{calls} {effective} {tested} {rule}")
}

fn write_tested(tested: &TestedArgument) -> String {
    let TestedArgument { argument, values, others } = tested;
    let values: String = values.iter().map(|(value, calls)| format!("{value}:{calls},")).collect();
    format!("{argument},{values}{OTHERS}{others}")
}

/// Reads the text of a fact; `None` if it is malformed.
pub(super) fn read(text: &str) -> Option<TagFunctionCalls> {
    let mut words = text.splitn(4, ' ');
    let (calls, effective) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let tested = match words.next()? {
        "-" => None,
        tested => Some(read_tested(tested)?),
    };
    Some(TagFunctionCalls { rule: words.next()?.to_owned(), calls, effective, tested })
}

fn read_tested(text: &str) -> Option<TestedArgument> {
    let (argument, rest) = text.split_once(',')?;
    let mut tested = TestedArgument { argument: argument.parse().ok()?, ..TestedArgument::default() };
    for part in rest.split(',') {
        match part.strip_prefix(OTHERS) {
            Some(others) => tested.others = others.parse().ok()?,
            None => {
                let (value, calls) = part.split_once(':')?;
                tested.values.push((value.parse().ok()?, calls.parse().ok()?));
            }
        }
    }
    Some(tested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_texts_are_no_functions() {
        for text in ["", "1 2 -", "1 x - f", "1 2 0 f", "1 2 0,1 f", "1 2 0,a:1,others:0 f", "1 2 0,others: f"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(read("1 2 - f").is_some());
    }
}
