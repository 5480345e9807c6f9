//! Unique texts of marks.

use rustc_hash::FxHashMap;

/// Texts of the marks of a recording.
#[derive(Debug, Default)]
pub struct MarkTexts {
    /// Used texts. The value is the last number that was appended to the text; 1 if no number was appended.
    used: FxHashMap<String, u32>,
}

impl MarkTexts {
    /// Returns the text if no mark has it. Otherwise, returns the first unused text among `TEXT#2`, `TEXT#3` and so on.
    pub fn unique(&mut self, text: String) -> String {
        let Some(&last) = self.used.get(&text) else {
            self.used.insert(text.clone(), 1);
            return text;
        };
        let mut number = last + 1;
        let mut next = format!("{text}#{number}");
        while self.used.contains_key(&next) {
            number += 1;
            next = format!("{text}#{number}");
        }
        self.used.insert(text, number);
        self.used.insert(next.clone(), 1);
        next
    }
}
