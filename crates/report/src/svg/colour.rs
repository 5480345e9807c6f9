//! Colours of the flame graph, pale enough for black text. Functions are green, as usual for memory. Inlined
//! functions and entries that are not functions have other colours.

use inferno::flamegraph::color::{Color, PaletteMap};

use super::entry::{INLINED, SEPARATOR};

/// Two colours. The hash of a name selects a mix of them.
type Shades = [[u8; 3]; 2];

const EVERYTHING: Shades = [[207, 216, 220], [207, 216, 220]];
const PROCESS: Shades = [[176, 190, 197], [188, 200, 206]];
const FUNCTION: Shades = [[174, 222, 140], [96, 194, 166]];
const INLINED_FUNCTION: Shades = [[158, 209, 230], [136, 190, 220]];
const UNKNOWN: Shades = [[222, 211, 192], [212, 200, 180]];

/// Returns a colour for each entry of `stacks`. The colour of a function depends only on its name, so that it is the
/// same in two pictures.
pub(super) fn palette(stacks: &[(String, u64)]) -> PaletteMap {
    let mut palette = PaletteMap::default();
    palette.insert("", shade("", EVERYTHING));
    for (stack, _) in stacks {
        for (depth, entry) in stack.split(SEPARATOR).enumerate() {
            if palette.get(entry).is_none() {
                palette.insert(entry, shade(entry, shades(depth, entry)));
            }
        }
    }
    palette
}

fn shades(depth: usize, entry: &str) -> Shades {
    if depth == 0 {
        PROCESS
    } else if entry.starts_with('[') {
        UNKNOWN
    } else if entry.ends_with(INLINED) {
        INLINED_FUNCTION
    } else {
        FUNCTION
    }
}

fn shade(entry: &str, [from, to]: Shades) -> Color {
    // FNV-1a, because hashes of the standard library may change between releases. The low bits of FNV-1a differ most.
    let hash = entry.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let weight = (hash ^ (hash >> 16)) & 0xff;
    let mix = |from: u8, to: u8| {
        let sum = u32::from(from) * (255 - weight) + u32::from(to) * weight;
        u8::try_from(sum / 255).unwrap_or(u8::MAX)
    };
    Color { r: mix(from[0], to[0]), g: mix(from[1], to[1]), b: mix(from[2], to[2]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_depends_on_the_name_alone() {
        let stacks = [(String::from("sh (1)\0main\0leaf"), 1), (String::from("sh (1)\0other\0leaf"), 2)];
        let palette_of_both = palette(&stacks);
        assert_eq!(palette_of_both.get("leaf"), palette(&stacks[1..]).get("leaf"));
        for name in ["main", "other", "leaf"] {
            let colour = palette_of_both.get(name).unwrap();
            assert!((96..=174).contains(&colour.r) && (194..=222).contains(&colour.g), "{name}: {colour:?}");
        }
        assert_ne!(palette_of_both.get("main"), palette_of_both.get("other"));
    }
}
