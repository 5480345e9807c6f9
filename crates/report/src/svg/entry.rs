//! Entries of folded stacks as they are given to inferno.

/// Separator that sorts before every character of a name, so that the order of the text is that of the tree: with
/// `;`, a sibling `f.cold` would come between `f` and `f;g`, and `f` would be drawn in two parts.
pub(super) const SEPARATOR: char = '\0';
/// Suffix by which inferno recognizes inlined functions. It does not draw it.
pub(super) const INLINED: &str = "_[i]";
