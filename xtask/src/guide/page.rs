//! Markdown of a page: fenced blocks with the markers before them, and pictures.

use std::ops::Range;

use anyhow::{Context as _, Result, bail};

/// Languages of blocks with output. Each of these blocks has a marker.
const OUTPUT: [&str; 2] = ["text", "console"];

/// Languages of blocks without output: commands, sources, settings, rules, queries.
const INPUT: [&str; 7] = ["sh", "c", "cpp", "rust", "conf", "toml", "sql"];

const FENCE: &str = "```";

/// Start and end of a marker: an HTML comment, which readers do not see.
const MARKER: [&str; 2] = ["<!-- sample: ", " -->"];

/// Fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// Number of the line with the opening fence, from 1.
    pub(super) line: usize,
    pub(super) language: &'a str,
    /// Name in the marker on the line before the block.
    pub(super) marker: Option<&'a str>,
    /// Bytes of the content in the page, with the last line feed.
    content: Range<usize>,
}

impl Block<'_> {
    /// Returns the content of the block in the page `text`.
    pub(super) fn content<'a>(&self, text: &'a str) -> &'a str {
        &text[self.content.clone()]
    }
}

/// Returns the blocks of a page, in their order.
///
/// # Errors
///
/// A block has no end, or no block follows a marker.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    let mut marker: Option<&str> = None;
    let mut offset = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (start, words) = (offset, line.trim_end());
        offset += line.len();
        if is_open {
            if words == FENCE
                && let Some(block) = blocks.last_mut()
            {
                block.content.end = start;
                is_open = false;
            }
            continue;
        }
        if let Some(language) = words.strip_prefix(FENCE) {
            blocks.push(Block { line: index + 1, language, marker: marker.take(), content: offset..offset });
            is_open = true;
        } else if let Some(name) = marker {
            bail!("no block follows the marker of {name}");
        } else {
            marker = words.strip_prefix(MARKER[0]).and_then(|rest| rest.strip_suffix(MARKER[1]));
        }
    }
    match (is_open, marker) {
        (true, _) => bail!("the last block has no end"),
        (false, Some(name)) => bail!("no block follows the marker of {name}"),
        (false, None) => Ok(blocks),
    }
}

/// Returns the rules that a block breaks; `None` for a correct block. A block with output has a marker, and no other block has
/// one.
pub(super) fn problem(block: &Block<'_>) -> Option<String> {
    let Block { line, language, marker, .. } = block;
    if OUTPUT.contains(language) {
        let text = format!("line {line}: output without a marker `{}NAME{}`", MARKER[0], MARKER[1]);
        marker.is_none().then_some(text)
    } else if INPUT.contains(language) {
        marker.map(|name| format!("line {line}: the marker of {name} is before a block of {language}"))
    } else {
        let known = [&OUTPUT[..], &INPUT[..]].concat().join(", ");
        Some(format!("line {line}: the language {language:?} of the block is none of {known}"))
    }
}

/// Returns the page with the content that `sample` returns for the markers. Other blocks remain.
///
/// # Errors
///
/// The markers of the page are wrong.
pub(super) fn with_samples(text: &str, sample: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut page = String::new();
    let mut end = 0;
    for block in blocks(text)? {
        if let Some(content) = block.marker.and_then(&sample) {
            page.push_str(&text[end..block.content.start]);
            page.push_str(&content);
            end = block.content.end;
        }
    }
    page.push_str(&text[end..]);
    Ok(page)
}

/// Returns the targets of the pictures of a page.
pub(super) fn pictures(text: &str) -> Vec<&str> {
    text.split("![").skip(1).filter_map(|part| Some(part.split_once("](")?.1.split_once(')')?.0)).collect()
}

/// Returns the path of the target of a link, relative to the top folder of the checkout. `page` is the path of the page.
///
/// # Errors
///
/// The target is above the top folder.
pub(super) fn resolve(page: &str, target: &str) -> Result<String> {
    let mut folders: Vec<&str> = page.split('/').collect();
    folders.pop();
    for part in target.split('/') {
        if part == ".." {
            folders.pop().with_context(|| format!("{page}: {target} is outside of the checkout"))?;
        } else {
            folders.push(part);
        }
    }
    Ok(folders.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# Page\n\n```sh\nmemtrace\n```\n\n<!-- sample: one -->\n```text\n  live  1 B\n```\n\n```text\nx\n```\n";

    #[test]
    fn blocks_have_languages_and_markers() {
        let blocks = blocks(PAGE).unwrap();
        let found: Vec<_> = blocks.iter().map(|block| (block.line, block.language, block.marker)).collect();
        assert_eq!(found, [(3, "sh", None), (8, "text", Some("one")), (12, "text", None)]);
        assert_eq!(blocks[1].content(PAGE), "  live  1 B\n");
    }

    #[test]
    fn output_needs_a_marker() {
        let problems: Vec<_> = blocks(PAGE).unwrap().iter().map(problem).collect();
        assert_eq!(problems[..2], [None, None]);
        assert!(problems[2].as_deref().unwrap().starts_with("line 12: output without a marker"));
        for page in ["<!-- sample: one -->\n```sh\n```\n", "```\nls\n```\n"] {
            assert!(problem(&blocks(page).unwrap()[0]).is_some(), "{page}");
        }
    }

    #[test]
    fn marker_without_a_block_is_an_error() {
        assert!(blocks("<!-- sample: one -->\n\n```text\n```\n").is_err());
        assert!(blocks("<!-- sample: one -->\n").is_err());
        assert!(blocks("```text\nend\n").is_err());
        assert!(blocks("<!-- another comment -->\ntext\n").unwrap().is_empty());
    }

    #[test]
    fn only_samples_are_replaced() {
        let page = with_samples(PAGE, |name| (name == "one").then(|| String::from("  live  2 B\nmore\n"))).unwrap();
        assert_eq!(page, PAGE.replace("  live  1 B\n", "  live  2 B\nmore\n"));
        assert_eq!(with_samples(PAGE, |_| None).unwrap(), PAGE);
    }

    #[test]
    fn fence_in_a_block_does_not_begin_another() {
        let page = "```text\n```sh\n```\nafter\n";
        assert_eq!(blocks(page).unwrap()[0].content(page), "```sh\n");
    }

    #[test]
    fn pictures_are_found_and_resolved() {
        assert_eq!(pictures("a ![A graph](../demo.svg) and [link](x.md)\n![B](page.png)"), ["../demo.svg", "page.png"]);
        assert_eq!(resolve("docs/guide/formats.md", "../demo.svg").unwrap(), "docs/demo.svg");
        assert_eq!(resolve("README.md", "docs/demo.svg").unwrap(), "docs/demo.svg");
        assert!(resolve("README.md", "../x.svg").is_err());
    }
}
