//! Rule: the crate `object` opens no path and no connection, and reads no environment. Its functions take open files, or a
//! trait object that opens files for them.

use syn::ExprMethodCall;
use syn::visit::{self, Visit};

use super::paths;
use super::product::{self, ProductFile};
use super::tree::{Source, Tree};
use super::violation::Violation;

/// Sources of the crate.
const OBJECT: &str = "crates/object/src/";

/// Methods of `std::path::Path` that access the file.
const METHODS: [&str; 6] = ["canonicalize", "exists", "read_dir", "read_link", "symlink_metadata", "try_exists"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    product::files_below(tree, OBJECT).iter().flat_map(check_file).collect()
}

fn check_file(file: &ProductFile<'_>) -> Vec<Violation> {
    let mut checker = Checker { source: file.source, violations: Vec::new() };
    for path in paths::in_file(&file.syntax, &file.module) {
        let segments: Vec<_> = path.segments.iter().map(String::as_str).collect();
        if opens(&segments) {
            checker.add(&segments.join("::"), path.line);
        }
    }
    checker.visit_file(&file.syntax);
    checker.violations
}

/// Returns true if a path of Rust names a function that opens a file or a connection, or a module of such functions.
fn opens(path: &[&str]) -> bool {
    match path {
        ["std", "fs", "File" | "Metadata"] => false,
        // All functions of `File` that have no receiver open or create a file.
        ["std", "env" | "fs" | "net", ..] | ["std", "os", "unix", "net", ..] | ["File", _, ..] => true,
        _ => false,
    }
}

struct Checker<'a> {
    source: &'a Source,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn add(&mut self, name: &str, line: usize) {
        let message = format!("object opens no path and no connection: {name}; take an open file or ObjectFiles");
        self.violations.push(Violation::new(self.source, line, message));
    }
}

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if METHODS.contains(&name.as_str()) {
            self.add(&name, call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names in the violations of a file at `path`.
    fn opened(path: &str, text: &str) -> Vec<String> {
        let name = |violation: Violation| {
            let rest = violation.message.strip_prefix("object opens no path and no connection: ").unwrap().to_owned();
            rest.split_once(';').unwrap().0.to_owned()
        };
        check(&Tree::of(&[(path, text)])).into_iter().map(name).collect()
    }

    #[test]
    fn opened_path_is_a_violation() {
        let text = "
            use std::fs::{self, File, OpenOptions, read_dir};
            fn f(path: &Path) { File::open(path); std::fs::read(path); std::env::current_exe(); path.exists(); }
            fn g() { assert!(std::net::TcpStream::connect(1)); }";
        let expected = [
            "std::fs",
            "std::fs::OpenOptions",
            "std::fs::read_dir",
            "File::open",
            "std::fs::read",
            "std::env::current_exe",
            "std::net::TcpStream::connect",
            "exists",
        ];
        assert_eq!(opened("crates/object/src/elf/file.rs", text), expected);
        assert_eq!(opened("crates/host/src/target_files.rs", text), [""; 0]);
    }

    #[test]
    fn open_files_and_tests_are_no_violations() {
        let text = "
            use std::fs::{File, Metadata};
            use std::os::unix::fs::FileExt as _;
            fn f(file: &File, files: &dyn ObjectFiles) { file.metadata(); files.open(path); }
            #[cfg(test)]
            mod tests { fn t() { std::fs::read(path); File::open(path); } }";
        assert_eq!(opened("crates/object/src/elf/file.rs", text), [""; 0]);
    }
}
