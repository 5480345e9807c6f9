//! Data of the Go module in an executable (`moduledata`, runtime/symtab.go). Its pointers lead to what the table of functions
//! refers to: the code, and the data of functions.

use super::table_header::TableHeader;
use crate::elf::{Elf, ElfError, Source, relocations};

/// Size of a pointer in bytes.
const WORD: u64 = 8;
/// Number of words that are looked at.
const WORDS: usize = 48;
/// Maximum number of places that are examined. A hostile object has many pointers to the table.
const MAX_PLACES: usize = 8;

/// Indices of words. Slices have three words: address, length, capacity.
const NAMES: usize = 1;
const FUNCTIONS: usize = 13;
const FUNCTION_LIST: usize = 16;
const TEXT: usize = 22;
const END_OF_TEXT: usize = 23;

/// Addresses in the data of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleData {
    /// Address of the code of Go (`runtime.text`).
    pub(super) text: u64,
    /// Address of the data of functions (`go:func.*`); `None` if its place is not known for the version.
    pub(super) function_data: Option<u64>,
}

impl ModuleData {
    /// Finds the data of the module that `header` belongs to. `minor`: minor release of the toolchain, if known.
    pub(super) fn find(
        elf: &Elf<impl Source>,
        header: &TableHeader,
        minor: Option<u32>,
    ) -> Result<Option<Self>, ElfError> {
        let mut places = Vec::new();
        relocations::for_each_pointer(elf, |place, target| {
            if target == header.address && places.len() < MAX_PLACES {
                places.push(place);
            }
        })?;
        let (Some(&first), Some(&last)) = (places.iter().min(), places.iter().max()) else { return Ok(None) };
        let mut modules: Vec<(u64, [u64; WORDS])> = places.into_iter().map(|place| (place, [0; WORDS])).collect();
        let length = WORD * WORDS as u64;
        relocations::for_each_pointer(elf, |place, target| {
            if place < first || place - last.min(place) >= length {
                return;
            }
            for (start, words) in &mut modules {
                let inside = place.wrapping_sub(*start);
                if inside.is_multiple_of(WORD)
                    && let Some(word) = words.get_mut((inside / WORD) as usize)
                {
                    *word = target;
                }
            }
        })?;
        let [names, _, _, _, functions] = header.parts.map(|part| header.address.wrapping_add(part));
        let is_module = |words: &[u64; WORDS]| {
            words[NAMES] == names
                && words[FUNCTIONS] == functions
                && words[FUNCTION_LIST] == functions
                && words[TEXT] < words[END_OF_TEXT]
        };
        let module = modules.iter().find(|(_, words)| is_module(words));
        Ok(module.map(|(_, words)| Self {
            text: words[TEXT],
            function_data: minor.and_then(function_data_word).map(|index| words[index]),
        }))
    }
}

/// Returns the index of the pointer to the data of functions (`gofunc`) in a release.
const fn function_data_word(minor: u32) -> Option<usize> {
    match minor {
        18 | 19 => Some(38),
        20..=26 => Some(40),
        27 => Some(43),
        _ => None,
    }
}
