//! The rules, and their file.

use std::sync::Arc;

use memtrace_model::Frame;
use serde::Deserialize;
use wildmatch::WildMatch;

/// Maximum number of rules. Each frame is compared with all of them.
const MAX_RULES: usize = 1000;

/// Rules that give stacks tags.
#[derive(Clone, Debug)]
pub struct TagRules {
    rules: Vec<Rule>,
    /// Text of the file. Rules are equal if their texts are equal.
    text: Arc<str>,
}

/// Error in a file of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The file is not TOML, or has unknown keys or wrong values. The text states the line.
    #[error("{0}")]
    Syntax(String),
    /// A rule has no condition.
    #[error("the rule for the tag {0:?} has no condition")]
    NoCondition(String),
    /// A rule has a number, and another condition.
    #[error("the rule for the tag {0:?} has a number and another condition")]
    NotOnlyNumber(String),
    /// The name of a tag is empty.
    #[error("a rule has an empty tag")]
    EmptyTag,
    /// The file has no rules.
    #[error("the file has no rules")]
    NoRules,
    /// The file has too many rules.
    #[error("the file has {0} rules; {MAX_RULES} are possible")]
    TooMany(usize),
}

/// A rule. A stack matches if one of its frames meets all conditions on frames, and its thread meets the condition on
/// threads. A rule with a number names the tag that processes set with this number.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    function: Option<WildMatch>,
    object: Option<Pattern>,
    source: Option<Pattern>,
    thread: Option<WildMatch>,
    number: Option<u64>,
}

/// Pattern of a path, or of a file name if it has no slash.
#[derive(Clone, Debug)]
struct Pattern {
    pattern: WildMatch,
    is_path: bool,
}

/// Contents of a file of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFields {
    tag: String,
    function: Option<String>,
    object: Option<String>,
    source: Option<String>,
    thread: Option<String>,
    number: Option<u64>,
}

impl TagRules {
    /// Reads the rules in the text of a file.
    ///
    /// # Errors
    ///
    /// The text is not a valid file of rules.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let file: RuleFile =
            toml::from_str(text).map_err(|error| RuleError::Syntax(error.to_string().trim_end().to_owned()))?;
        match file.rule.len() {
            0 => return Err(RuleError::NoRules),
            1..=MAX_RULES => {}
            many => return Err(RuleError::TooMany(many)),
        }
        let rules = file.rule.into_iter().map(Rule::new).collect::<Result<_, _>>()?;
        Ok(Self { rules, text: text.into() })
    }

    /// Returns the text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name that the rules give the tag with this number.
    pub(super) fn name_of(&self, number: u64) -> Option<&str> {
        self.rules.iter().find(|rule| rule.number == Some(number)).map(|rule| rule.name.as_str())
    }

    /// Returns true if all rules only name tags that processes set.
    pub fn only_name_numbers(&self) -> bool {
        self.rules.iter().all(|rule| rule.number.is_some())
    }

    /// Returns true if at least one rule has a condition on threads.
    pub fn tests_threads(&self) -> bool {
        self.rules.iter().any(|rule| rule.thread.is_some())
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl PartialEq for TagRules {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TagRules {}

impl Rule {
    fn new(fields: RuleFields) -> Result<Self, RuleError> {
        let RuleFields { tag, function, object, source, thread, number } = fields;
        if tag.is_empty() {
            return Err(RuleError::EmptyTag);
        }
        let has_pattern = [&function, &object, &source, &thread].iter().any(|condition| condition.is_some());
        match (has_pattern, number) {
            (false, None) => return Err(RuleError::NoCondition(tag)),
            (true, Some(_)) => return Err(RuleError::NotOnlyNumber(tag)),
            _ => {}
        }
        let name = |text: Option<String>| text.map(|text| WildMatch::new(&text));
        let path = |text: Option<String>| text.map(|text| Pattern::new(&text));
        Ok(Self {
            name: tag,
            function: name(function),
            object: path(object),
            source: path(source),
            thread: name(thread),
            number,
        })
    }

    /// Returns true if the rule has conditions on frames.
    pub(super) const fn tests_frames(&self) -> bool {
        self.function.is_some() || self.object.is_some() || self.source.is_some()
    }

    /// Returns true if the rule has a condition on threads and no condition on frames.
    pub(super) const fn tests_threads_only(&self) -> bool {
        !self.tests_frames() && self.thread.is_some()
    }

    /// Returns true if a frame meets the conditions on frames.
    pub(super) fn has_frame(&self, frame: &Frame) -> bool {
        let function = || frame.name.as_ref().ok().map(|name| name.0.as_str());
        let object = || frame.object.as_ref().map(|object| object.path.to_string_lossy());
        let source = || frame.location.as_ref().map(|location| location.file.to_string_lossy());
        self.function.as_ref().is_none_or(|pattern| function().is_some_and(|name| pattern.matches(name)))
            && self.object.as_ref().is_none_or(|pattern| object().is_some_and(|path| pattern.matches(&path)))
            && self.source.as_ref().is_none_or(|pattern| source().is_some_and(|path| pattern.matches(&path)))
    }

    /// Returns true if a thread with this name meets the condition on threads.
    pub(super) fn has_thread(&self, name: Option<&str>) -> bool {
        self.thread.as_ref().is_none_or(|pattern| name.is_some_and(|name| pattern.matches(name)))
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { pattern: WildMatch::new(text), is_path: text.contains('/') }
    }

    fn matches(&self, path: &str) -> bool {
        let tested = if self.is_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        self.pattern.matches(tested)
    }
}
