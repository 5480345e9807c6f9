//! Replaces the sections with results in docs/guide/overhead.md.

use anyhow::{Context as _, Result};

/// Replaces the section `name`. Two comments enclose a section.
pub(super) fn with_section(text: &str, name: &str, content: &str) -> Result<String> {
    let begin = format!("<!-- {name}: written by `cargo xtask bench readme` -->\n");
    let end = format!("<!-- {name}: end -->\n");
    let missing = || format!("the page has no section {name}");
    let (before, rest) = text.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", content.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "above\n<!-- real: written by `cargo xtask bench readme` -->\nold\n<!-- real: end -->\nbelow\n";

    #[test]
    fn only_the_section_is_replaced() {
        let new = "above\n<!-- real: written by `cargo xtask bench readme` -->\n\nnew\n\n<!-- real: end -->\nbelow\n";
        assert_eq!(with_section(TEXT, "real", "new\n").unwrap(), new);
        assert_eq!(with_section(new, "real", "new").unwrap(), new);
    }

    #[test]
    fn missing_section_is_an_error() {
        assert!(with_section(TEXT, "overhead", "new").is_err());
        assert!(with_section("<!-- real: end -->\n", "real", "new").is_err());
    }

    #[test]
    fn document_has_all_sections() {
        let page = include_str!("../../../docs/guide/overhead.md");
        for name in ["overhead", "spans", "real"] {
            assert!(with_section(page, name, "").is_ok(), "{name}");
        }
    }
}
