//! Comparison of the names of functions with a name that a user has written: a part of a name, or a pattern.

use std::borrow::Cow;

use super::demangle::demangle;

/// Additions of the compiler to the symbol of a C function. The function is a copy of the named one.
const CLONES: [&str; 4] = [".constprop.", ".isra.", ".llvm.", ".lto_priv."];

/// Symbols of parts of functions, and of C++ functions that only adjust `this` and jump to the named one.
const PARTS: [&str; 2] = [".cold", ".part."];
const THUNKS: [&str; 3] = ["_ZTh", "_ZTv", "_ZTc"];

/// Maximum length of a wanted name that is compared with all names to find similar ones.
const MAX_COMPARED: usize = 128;

/// Minimum length of a wanted name for which every name that contains it counts as similar.
const MIN_CONTAINED: usize = 3;

/// Name of a function, in the forms that a user may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionName<'a> {
    symbol: &'a str,
    /// Demangled name without the type of the result: `ns::Server<int>::handle(int) const`.
    full: String,
    /// Length of `full` without the parameters: the length of `ns::Server<int>::handle`.
    qualified: usize,
}

impl<'a> FunctionName<'a> {
    /// Parses a symbol. Returns `None` for the symbol of a part of a function, and of a thunk.
    pub(super) fn parse(symbol: &'a str) -> Option<Self> {
        if PARTS.iter().any(|part| symbol.contains(part)) || THUNKS.iter().any(|thunk| symbol.starts_with(thunk)) {
            return None;
        }
        Some(match demangle(symbol) {
            Cow::Owned(demangled) => {
                let (start, end) = qualified(&demangled);
                Self { symbol, full: demangled[start..].to_owned(), qualified: end - start }
            }
            Cow::Borrowed(name) => {
                let clone = CLONES.iter().filter_map(|clone| name.find(clone)).min();
                let full = name[..clone.unwrap_or(name.len())].to_owned();
                Self { symbol, qualified: full.len(), full }
            }
        })
    }

    /// Returns the name without parameters: `ns::Server<int>::handle`.
    pub(super) fn qualified(&self) -> &str {
        &self.full[..self.qualified]
    }

    /// Returns true if `wanted` is the name, or the last components of it. Parameters, and the arguments of templates, may
    /// be left out.
    pub(super) fn ends_with(&self, wanted: &str) -> bool {
        let is_end =
            |name: &str| name.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with("::"));
        is_end(&self.full) || is_end(self.qualified()) || is_end(&without_template_arguments(self.qualified()))
    }

    /// Returns true if `pattern` matches the symbol, or the name with or without parameters. `*` stands for any characters.
    pub(super) fn matches(&self, pattern: &str) -> bool {
        matches(pattern, self.symbol) || matches(pattern, &self.full) || matches(pattern, self.qualified())
    }

    /// Returns the distance to a name that is written wrongly; `None` if the names are not similar. `wanted` is in lower
    /// case.
    pub(super) fn distance(&self, wanted: &str) -> Option<usize> {
        let wanted = last_component(wanted);
        let name = without_template_arguments(self.qualified());
        let name = last_component(&name).to_ascii_lowercase();
        if wanted.len() >= MIN_CONTAINED && name.contains(wanted) {
            return Some(1);
        }
        let most = (wanted.len() / 3).max(1);
        let comparable = wanted.len() <= MAX_COMPARED && name.len().abs_diff(wanted.len()) <= most;
        comparable.then(|| edits(wanted.as_bytes(), name.as_bytes())).filter(|&edits| edits <= most)
    }
}

/// Returns the start and the end of the qualified name in a demangled name: after the type of the result, and before
/// the parameters.
fn qualified(demangled: &str) -> (usize, usize) {
    let (mut depth, mut start, mut before) = (0_usize, 0, ' ');
    for (at, character) in demangled.char_indices() {
        let rest = &demangled[at..];
        match character {
            'o' if depth == 0 && is_operator(before, rest) => {
                let name = "operator".len() + if rest.starts_with("operator()") { 2 } else { 0 };
                let parameters = rest[name..].find('(').map_or(rest.len(), |found| name + found);
                return (start, at + parameters);
            }
            '(' if depth == 0 && !rest.starts_with("(anonymous namespace)") => return (start, at),
            '<' | '[' | '{' | '(' => depth += 1,
            // The arrow of a type of a function is no bracket.
            '>' if before == '-' => {}
            '>' | ']' | '}' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
        before = character;
    }
    (start, demangled.len())
}

/// Returns true if `rest` begins with the word `operator`. `before` is the character before it.
fn is_operator(before: char, rest: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    !is_word(before) && rest.strip_prefix("operator").is_some_and(|rest| !rest.starts_with(is_word))
}

/// Removes the arguments of templates from a qualified name. Names of operators are returned as they are: they may contain
/// angle brackets.
fn without_template_arguments(qualified: &str) -> Cow<'_, str> {
    if !qualified.contains('<') || qualified.contains("operator") {
        return Cow::Borrowed(qualified);
    }
    let (mut depth, mut before) = (0_usize, ' ');
    let mut plain = String::with_capacity(qualified.len());
    for character in qualified.chars() {
        match character {
            '<' => depth += 1,
            '>' if before == '-' => {}
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(character),
            _ => {}
        }
        before = character;
    }
    Cow::Owned(plain)
}

fn last_component(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns true if `pattern` matches all of `text`. `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, others)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
    for part in middle.split('*') {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the number of characters that have to be inserted, removed or replaced to get `other` from `one`.
fn edits(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, byte) in (1..).zip(one) {
        let mut diagonal = row[0];
        row[0] = number;
        for (column, other) in (1..).zip(other) {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[column];
            row[column] = replaced.min(row[column - 1] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(demangled: &str) -> &str {
        let (start, end) = qualified(demangled);
        &demangled[start..end]
    }

    #[test]
    fn results_and_parameters_are_no_part_of_the_qualified_name() {
        for (demangled, name) in [
            ("ns::Server::handle(int) const", "ns::Server::handle"),
            ("void ns::run<int, std::pair<int, int> >(int)", "ns::run<int, std::pair<int, int> >"),
            ("(anonymous namespace)::reset()", "(anonymous namespace)::reset"),
            ("std::function<int (int)> make<int>(int)", "make<int>"),
            ("ns::Job::operator()(int)", "ns::Job::operator()"),
            ("ns::operator<<(std::ostream&, int)", "ns::operator<<"),
            ("operator new(unsigned long)", "operator new"),
            ("ns::Text::operator std::string() const", "ns::Text::operator std::string"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
            ("operators::count(int)", "operators::count"),
            ("<demo::Key as core::hash::Hash>::hash", "<demo::Key as core::hash::Hash>::hash"),
            ("<fn(u8) -> u8 as demo::Call>::call", "<fn(u8) -> u8 as demo::Call>::call"),
            ("handle", "handle"),
            ("", ""),
        ] {
            assert_eq!(of(demangled), name, "{demangled}");
        }
    }

    #[test]
    fn last_components_are_found_with_and_without_arguments() {
        let is_end = |symbol: &str, wanted: &str| FunctionName::parse(symbol).unwrap().ends_with(wanted);
        // ns::Server::handle(int)
        for wanted in ["handle", "Server::handle", "ns::Server::handle", "handle(int)", "Server::handle(int)"] {
            assert!(is_end("_ZN2ns6Server6handleEi", wanted), "{wanted}");
        }
        for other in ["andle", "Server", "handle(", "handle(long)", "other::handle", "::handle"] {
            assert!(!is_end("_ZN2ns6Server6handleEi", other), "{other}");
        }
        // void ns::run<int>(int)
        for wanted in ["run", "run<int>", "ns::run", "ns::run<int>(int)"] {
            assert!(is_end("_ZN2ns3runIiEEvT_", wanted), "{wanted}");
        }
        assert!(is_end("handle.constprop.0", "handle") && is_end("handle.isra.0.lto_priv.1", "handle"));
        assert!(is_end("main.handle", "main.handle") && !is_end("main.handle", "main"));
        for part in ["handle.cold", "_ZN2ns6Server6handleEi.cold", "handle.part.0", "_ZThn8_N2ns6Server6handleEi"] {
            assert_eq!(FunctionName::parse(part), None, "{part}");
        }
    }

    #[test]
    fn asterisks_stand_for_any_characters() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "f"),
            ("f*", "f"),
            ("handle_*", "handle_request"),
            ("*_request", "handle_request"),
            ("*a*b*", "xaxbx"),
            ("ab*ab", "abab"),
            ("f(char*)", "f(char*)"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        let others = [("ab*ab", "ab"), ("*a*b*", "ba"), ("f*", "gf"), ("f", "ff"), ("*f", "fg"), ("a*b*c", "acb")];
        for (pattern, text) in others {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        let name = FunctionName::parse("_ZN2ns6Server6handleEi").unwrap();
        for pattern in ["ns::*", "*::handle", "*handle(int)", "_ZN2ns*", "ns::*::handle"] {
            assert!(name.matches(pattern), "{pattern}");
        }
        assert!(!name.matches("Server::*"));
    }

    #[test]
    fn similar_names_have_few_edits_or_contain_the_name() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!([edits(b"", b"abc"), edits(b"abc", b""), edits(b"abc", b"abc")], [3, 3, 0]);
        let distance = |symbol: &str, wanted: &str| FunctionName::parse(symbol).unwrap().distance(wanted);
        assert_eq!(distance("handle_request", "handle_requst"), Some(1));
        assert_eq!(distance("handle_request", "request"), Some(1));
        assert_eq!(distance("_ZN2ns6Server6handleEi", "server::hadnle"), Some(2));
        assert_eq!(distance("HandleRequest", "handlerequest"), Some(1));
        assert_eq!(distance("main", "handle_request"), None);
        assert_eq!(distance("fo", "f"), Some(1));
        assert_eq!(distance("x", &"y".repeat(4000)), None);
    }
}
