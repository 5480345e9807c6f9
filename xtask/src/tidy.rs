//! `cargo xtask tidy`: project rules for source files. A test of xtask checks them too.

mod attributes;
mod bpf_side;
mod cycles;
mod file_graph;
mod impls;
mod kernel_paths;
mod modules;
mod opened_paths;
mod paths;
mod product;
mod public_items;
mod shape;
mod sizes;
mod table;
mod tree;
mod violation;
mod words;

use anyhow::{Result, bail};
use tree::Tree;
use violation::Violation;

use crate::ui;
use crate::workspace::Workspace;

/// Function that checks a rule.
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
    opened_paths::check,
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
}
