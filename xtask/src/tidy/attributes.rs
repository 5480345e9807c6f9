//! Rule: every `allow` and `expect` has a reason, no test is ignored, and no `dbg!` remains.

use proc_macro2::TokenTree;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Macro};

use super::tree::{Source, Tree};
use super::violation::Violation;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_below("").flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let file = match syn::parse_file(&source.text) {
        Ok(file) => file,
        Err(error) => return vec![Violation::new(source, error.span().start().line, format!("not Rust: {error}"))],
    };
    let mut checker = Checker { source, violations: Vec::new() };
    checker.visit_file(&file);
    checker.violations
}

struct Checker<'a> {
    source: &'a Source,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn report(&mut self, line: usize, message: &str) {
        self.violations.push(Violation::new(self.source, line, message));
    }
}

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let line = attribute.span().start().line;
        let path = attribute.path();
        if path.is_ident("ignore") {
            self.report(line, "a test must not be ignored");
        }
        if (path.is_ident("allow") || path.is_ident("expect")) && !has_reason(attribute) {
            self.report(line, "a lint is allowed without a reason");
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        if item.path.is_ident("dbg") {
            self.report(item.span().start().line, "remove dbg!");
        }
        visit::visit_macro(self, item);
    }
}

fn has_reason(attribute: &Attribute) -> bool {
    attribute.meta.require_list().is_ok_and(|list| {
        list.tokens.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "reason"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check(&Tree::of(&[("demo/src/a.rs", text)])).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn ignored_test_is_a_violation() {
        assert_eq!(messages("#[test] #[ignore] fn f() {}"), ["a test must not be ignored"]);
        assert_eq!(messages("#[test] #[ignore = \"slow\"] fn f() {}"), ["a test must not be ignored"]);
    }

    #[test]
    fn allowed_lint_needs_a_reason() {
        let message = "a lint is allowed without a reason";
        assert_eq!(messages("#![allow(dead_code)]"), [message]);
        assert_eq!(messages("#[expect(dead_code)] fn f() {}"), [message]);
        assert_eq!(messages("#[allow(dead_code, reason = \"only a part is used here\")] fn f() {}"), [""; 0]);
    }

    #[test]
    fn dbg_is_a_violation() {
        let text = ["fn f() { db", "g!(1); }"].concat();
        assert_eq!(messages(&text), ["remove dbg!"]);
    }

    #[test]
    fn invalid_rust_is_a_violation() {
        assert_eq!(messages("fn (").len(), 1);
    }
}
