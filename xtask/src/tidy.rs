//! `cargo xtask tidy`: project rules for source files. A test of this package checks them too.

mod attributes;
mod bpf_side;
mod cycles;
mod file_graph;
mod impls;
mod kernel_paths;
mod modules;
mod paths;
mod product;
mod public_items;
mod shape;
mod sizes;
mod table;
mod tree;
mod words;

use std::fmt;

use anyhow::{Result, bail};
use tree::{Source, Tree};

use crate::ui;
use crate::workspace::Workspace;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    /// The line, from 1; 0 for the whole file.
    line: usize,
    message: String,
}

impl Violation {
    fn new(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// The function of a rule.
type Check = fn(&Tree) -> Vec<Violation>;

const RULES: &[Check] = &[
    words::check,
    shape::check,
    attributes::check,
    impls::check,
    modules::check,
    public_items::check,
    cycles::check,
    kernel_paths::check,
    bpf_side::check,
];

/// Checks all rules.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    ui::step("Checking the tidy rules");
    let tree = Tree::read(workspace.root())?;
    for warning in shape::warnings(&tree) {
        ui::warning(&warning.to_string());
    }
    let violations = violations(&tree);
    for violation in &violations {
        ui::failure(&violation.to_string());
    }
    if !violations.is_empty() {
        bail!("violations of the tidy rules: {} (see CONTRIBUTING.md)", violations.len());
    }
    ui::note(&format!("{} files checked", tree.sources.len()));
    Ok(())
}

/// Prints the lines and files of the product.
pub(crate) fn print_sizes(workspace: &Workspace) -> Result<()> {
    ui::result(&sizes::table(&Tree::read(workspace.root())?));
    Ok(())
}

fn violations(tree: &Tree) -> Vec<Violation> {
    let mut violations: Vec<_> = RULES.iter().flat_map(|check| check(tree)).collect();
    violations.sort();
    violations.dedup();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_tidy() {
        let tree = Tree::read(Workspace::find().unwrap().root()).unwrap();
        assert!(tree.sources.len() > 30, "cannot find the sources");
        let violations: Vec<String> = violations(&tree).iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    #[test]
    fn violation_is_shown_with_file_and_line() {
        let violation = Violation { path: String::from("a.rs"), line: 3, message: String::from("no") };
        assert_eq!(violation.to_string(), "a.rs:3: no");
        assert_eq!(Violation { line: 0, ..violation }.to_string(), "a.rs: no");
    }
}
