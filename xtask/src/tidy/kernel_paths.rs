//! Rule: paths in `/proc` and `/sys` occur only in the module `procfs` of the crate `host`.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Lit, LitStr, Macro};

use super::product;
use super::tree::{Source, Tree};
use super::violation::Violation;

/// Crate and module that may contain the paths.
const READER: (&str, &str) = ("crates/host/src/", "procfs");

/// Folders of the kernel's file systems. cgroupfs, tracefs and bpffs are mounted below `/sys`.
const FOLDERS: [&str; 2] = ["/proc", "/sys"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for folder in product::CRATES {
        for file in product::files_below(tree, folder) {
            if folder != READER.0 || file.module.first().is_none_or(|module| module != READER.1) {
                let mut checker = Checker { source: file.source, violations: Vec::new() };
                checker.visit_file(&file.syntax);
                violations.extend(checker.violations);
            }
        }
    }
    violations
}

struct Checker<'a> {
    source: &'a Source,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn check_literal(&mut self, literal: &LitStr) {
        let text = literal.value();
        if is_kernel_path(&text) {
            let message = format!("only {} may contain paths of the kernel: {text:?}", READER.1);
            self.violations.push(Violation::new(self.source, literal.span().start().line, message));
        }
    }

    fn check_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Literal(literal) => {
                    if let Lit::Str(literal) = Lit::new(literal) {
                        self.check_literal(&literal);
                    }
                }
                TokenTree::Group(group) => self.check_tokens(group.stream()),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Checker<'_> {
    /// Skips documentation.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        self.check_literal(literal);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.check_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// Returns true if a literal is a path of the kernel. A text with blanks is a message that mentions a path.
fn is_kernel_path(text: &str) -> bool {
    let is_below = |folder| text.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    !text.contains(char::is_whitespace) && FOLDERS.into_iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn kernel_path_outside_of_procfs_is_a_violation() {
        let text = r#"fn f() { read("/proc/self/maps"); format!("/sys/fs/cgroup/{}", 1); }"#;
        let expected = ["/proc/self/maps", "/sys/fs/cgroup/{}"]
            .map(|path| format!("only procfs may contain paths of the kernel: {path:?}"));
        assert_eq!(messages("crates/host/src/kernel/load.rs", text), expected);
        assert_eq!(messages("crates/host/src/procfs/maps.rs", text), [""; 0]);
    }

    #[test]
    fn messages_documentation_and_tests_may_mention_kernel_paths() {
        let text = r#"
            /// /proc
            const REMEDY: &str = "mount proc at /proc";
            const OTHER: &str = "/system";
            #[cfg(test)]
            const FILE: &str = "/proc/self/maps";
        "#;
        assert_eq!(messages("memtrace/src/doctor.rs", text), [""; 0]);
    }
}
