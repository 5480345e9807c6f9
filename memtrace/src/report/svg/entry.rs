//! Entries of folded stacks as they are given to inferno.

/// Lower than any character of a name, so that the order of the text is that of the tree: with `;` a sibling `f.cold`
/// would come between `f` and `f;g`, and `f` would be drawn in two parts.
pub(super) const SEPARATOR: char = '\0';
/// By this inferno knows an inlined function; it does not show it.
pub(super) const INLINED: &str = "_[i]";
