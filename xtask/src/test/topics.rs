//! Topics of the privileged tests. Each module is a topic.
//!
//! The path of a module determines the tier of its tests, and whether they run in lanes. Tests in a module `long`
//! belong to the long tier, and run alone. Tests in a module `alone` run alone too. All other tests run in lanes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command;

/// Name of the modules with tests that run alone.
const ALONE: &str = "alone";

/// Name of the modules with tests of the long tier.
const LONG: &str = "long";

/// Part of the path of each test in a module `long`.
pub(super) const LONG_PATH: &str = "long::";

/// Tests of one module. One process runs all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topic {
    /// Path of the module.
    pub(super) name: String,
    /// Paths of the tests.
    pub(super) tests: Vec<String>,
}

/// All topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Topics {
    /// Topics of the lanes. The largest topic is first, so that all lanes finish at about the same time.
    pub(super) lanes: Vec<Topic>,
    pub(super) alone: Vec<Topic>,
    pub(super) long: Vec<Topic>,
}

impl Topics {
    /// Returns the topics of a test binary.
    ///
    /// # Errors
    ///
    /// The binary cannot run, or a test is in no module.
    pub(super) fn of(program: &Path) -> Result<Self> {
        Self::from_names(list(program)?)
    }

    fn from_names(names: Vec<String>) -> Result<Self> {
        let mut by_module: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in names {
            let Some((module, _)) = name.rsplit_once("::") else { bail!("the test {name} is in no module") };
            by_module.entry(module.to_owned()).or_default().push(name);
        }
        let mut topics = Self::default();
        for (name, tests) in by_module {
            let is_in = |module: &str| name.split("::").any(|part| part == module);
            let list = match (is_in(LONG), is_in(ALONE)) {
                (true, _) => &mut topics.long,
                (false, true) => &mut topics.alone,
                (false, false) => &mut topics.lanes,
            };
            list.push(Topic { name, tests });
        }
        topics.lanes.sort_by_key(|topic| std::cmp::Reverse(topic.tests.len()));
        Ok(topics)
    }
}

/// Returns the paths of the tests of a binary.
pub(crate) fn list(program: &Path) -> Result<Vec<String>> {
    let listed = command::answer(Command::new(program).args(["--list", "--format", "terse"]))
        .with_context(|| format!("cannot list the tests of {}", program.display()))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Topics {
        Topics::from_names(names.iter().map(ToString::to_string).collect()).unwrap()
    }

    fn names(topics: &[Topic]) -> Vec<&str> {
        topics.iter().map(|topic| topic.name.as_str()).collect()
    }

    #[test]
    fn path_of_a_module_says_where_its_tests_run() {
        let topics = topics(&["a::x", "a::alone::x", "alone::b::x", "alone::long::x", "long::c::x", "along::x"]);
        assert_eq!(names(&topics.lanes), ["a", "along"]);
        assert_eq!(names(&topics.alone), ["a::alone", "alone::b"]);
        assert_eq!(names(&topics.long), ["alone::long", "long::c"]);
    }

    #[test]
    fn largest_topic_of_the_lanes_is_first() {
        let topics = topics(&["a::x", "b::x", "b::y", "c::x"]);
        assert_eq!(names(&topics.lanes), ["b", "a", "c"]);
        assert_eq!(topics.lanes[0].tests, ["b::x", "b::y"]);
    }

    #[test]
    fn test_outside_of_modules_is_an_error() {
        let error = Topics::from_names(vec![String::from("x")]).unwrap_err();
        assert_eq!(error.to_string(), "the test x is in no module");
    }
}
