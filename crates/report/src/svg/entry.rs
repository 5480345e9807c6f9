//! Spelling of the entries of folded stacks for flame graphs.

/// Separator that sorts before every character of a name, so that texts have the order of the tree. With `;`, a
/// sibling `f.cold` would come between `f` and `f;g`, and `f` would be drawn in two parts.
pub(super) const SEPARATOR: char = '\0';
/// Suffix of inlined functions. inferno recognizes the suffix and does not draw it.
pub(super) const INLINED: &str = "_[i]";
