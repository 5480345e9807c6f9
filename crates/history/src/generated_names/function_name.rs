//! Function names as V8 writes them.

/// Kinds of JavaScript code in V8's names (`CodeKind`, src/objects/code-kind.cc; `Logger`, src/logging/log.cc).
const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"];

/// Markers of V8's tiers, such as `*` for the optimizing compiler, `~` for the interpreter, `^` for the baseline
/// compiler and `+` for Maglev (`CodeKindToMarker`, src/objects/code-kind.cc).
const TIERS: [char; 5] = ['*', '~', '^', '+', '\''];

/// A function name and its source location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct FunctionName {
    pub(in super::super) name: String,
    /// File and line.
    pub(in super::super) location: Option<(String, u32)>,
}

impl FunctionName {
    /// Splits V8's `LazyCompile:*name /path/file.js:12:3` into name, file and line. Names of other kinds stay as
    /// they are. A function without a name is named by its source location.
    pub(in super::super) fn parse(text: &str) -> Self {
        let unchanged = || Self { name: text.to_owned(), location: None };
        let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) else { return unchanged() };
        let rest = rest.strip_prefix(TIERS).unwrap_or(rest);
        let Some((function, place)) = split_place(rest) else { return unchanged() };
        let Some((file, line)) = split_line(place) else { return unchanged() };
        let name = match function {
            "" => format!("(anonymous {})", place.rsplit('/').next().unwrap_or(place)),
            function => function.to_owned(),
        };
        Self { name, location: Some((file.to_owned(), line)) }
    }
}

/// Splits `name place` into function name and source location. Both can contain spaces. A location usually begins
/// with a path or a scheme.
fn split_place(text: &str) -> Option<(&str, &str)> {
    let starts = [" /", " node:", " file://", " evalmachine."];
    let space = starts.iter().filter_map(|start| text.find(start)).min().or_else(|| text.rfind(' '))?;
    Some((text[..space].trim(), &text[space + 1..]))
}

/// Splits `file:line:column`.
fn split_line(place: &str) -> Option<(&str, u32)> {
    let (rest, column) = place.rsplit_once(':')?;
    column.parse::<u32>().ok()?;
    let (file, line) = rest.rsplit_once(':')?;
    let line = line.parse().ok().filter(|&line| line != 0)?;
    (!file.is_empty()).then_some((file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<(String, u32)>) {
        let FunctionName { name, location } = FunctionName::parse(text);
        (name, location)
    }

    #[test]
    fn javascript_names_have_a_location() {
        let at = |name: &str, file: &str, line| (name.to_owned(), Some((file.to_owned(), line)));
        let expected = [
            ("LazyCompile:*foo /srv/app.js:12:3", at("foo", "/srv/app.js", 12)),
            ("JS:~foo /srv/app.js:12:3", at("foo", "/srv/app.js", 12)),
            ("JS:*processHeader node:_http_outgoing:546:23", at("processHeader", "node:_http_outgoing", 546)),
            ("JS:^get size /srv/my app/a.js:1:2", at("get size", "/srv/my app/a.js", 1)),
            ("Function:+Foo.bar file:///srv/app.mjs:7:1", at("Foo.bar", "file:///srv/app.mjs", 7)),
            ("LazyCompile:* /srv/app.js:12:3", at("(anonymous app.js:12:3)", "/srv/app.js", 12)),
            ("Script:~ /srv/app.js:1:1", at("(anonymous app.js:1:1)", "/srv/app.js", 1)),
            ("Eval:~x evalmachine.<anonymous>:1:1", at("x", "evalmachine.<anonymous>", 1)),
        ];
        for (text, expected) in expected {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        let names = [
            "void java.util.Random.nextBytes(byte[])",
            "Builtin:ArrayMap",
            "RegExp:^a b:1:2$",
            "BytecodeHandler:LdaZero",
            "py::main:/srv/app.py",
            "LazyCompile:*foo",
            "LazyCompile:*foo /srv/app.js",
            "LazyCompile:*foo /srv/app.js:12",
            "LazyCompile:*foo :12:3",
            "LazyCompile:*foo /srv/app.js:0:3",
            "JS:",
            "",
        ];
        for name in names {
            assert_eq!(parsed(name), (name.to_owned(), None));
        }
    }
}
