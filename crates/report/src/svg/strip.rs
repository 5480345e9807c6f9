//! Strips below a flame graph.

/// Appends a strip of `height` pixels to a flame graph of inferno, and increases the height in the attributes `height` and
/// `viewBox` of the first element. `elements`: function that returns the elements of the strip, given the y coordinate of
/// its upper edge. Returns the picture without a change if its height cannot be read.
pub(super) fn append(picture: String, height: u32, elements: impl FnOnce(u32) -> String) -> String {
    let size = picture.find("height=\"").and_then(|at| picture[at + 8..].split('"').next()?.parse::<u32>().ok());
    let (Some(top), Some(content)) = (size, picture.strip_suffix("</svg>")) else { return picture };
    let total = top + height;
    let mut extended = content.replacen(&format!("height=\"{top}\""), &format!("height=\"{total}\""), 1).replacen(
        &format!(" {top}\" xmlns"),
        &format!(" {total}\" xmlns"),
        1,
    );
    extended.push_str(&elements(top));
    extended.push_str("</svg>");
    extended
}
