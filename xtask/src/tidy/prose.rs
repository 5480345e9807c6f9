//! Limits for words that make sentences hard to read, in comments and in documents.

use std::cmp::Reverse;

use super::Violation;
use super::tree::{Source, Tree};

/// A word or phrase, and its maximum rate.
struct Limit {
    /// Forms of the word, in lower case.
    forms: &'static [&'static str],
    /// Maximum number of occurrences per 1,000 words.
    per_thousand: f64,
}

/// Limits for the comments of all Rust files together, and for all documents together.
const LIMITS: &[Limit] = &[
    Limit { forms: &["what"], per_thousand: 2.0 },
    Limit { forms: &["who", "whose", "whoever", "whom"], per_thousand: 1.0 },
    Limit { forms: &["told", "tells", "tell"], per_thousand: 0.3 },
    Limit { forms: &["so many"], per_thousand: 0.1 },
    Limit { forms: &["beside", "besides"], per_thousand: 0.3 },
    Limit { forms: &["meanwhile"], per_thousand: 0.3 },
    Limit { forms: &["lest", "anew"], per_thousand: 0.1 },
];

/// Words that a summary of a doc comment should not open with.
const OPENINGS: [&str; 12] =
    ["What", "How", "Whether", "Where", "Who", "Whose", "Which", "Of", "Those", "So", "That", "Has"];

/// Maximum share of doc summaries that open with one of [`OPENINGS`], in percent.
const MAX_OPENINGS: f64 = 4.0;

/// Number of files in a message.
const LISTED: usize = 10;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let rust: Vec<(&Source, Vec<Comment<'_>>)> =
        tree.rust_below("").map(|source| (source, comments(&source.text))).collect();
    let texts = rust.iter().map(|(source, comments)| (*source, comment_text(comments))).collect();
    let documents = tree.sources.iter().filter(|source| source.path.ends_with(".md"));
    let documents = documents.map(|source| (source, document_text(&source.text))).collect();
    [check_words("comments", texts), check_words("documents", documents), check_openings(&rust)].concat()
}

/// A line of a comment.
struct Comment<'a> {
    text: &'a str,
    /// True for the first line of a doc comment.
    is_summary: bool,
}

fn comments(text: &str) -> Vec<Comment<'_>> {
    let mut comments = Vec::new();
    let mut continues = false;
    for line in text.lines().map(str::trim_start) {
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(text) = doc.or_else(|| line.strip_prefix("//")) else {
            continues = false;
            continue;
        };
        comments.push(Comment { text: text.trim(), is_summary: doc.is_some() && !continues });
        continues = true;
    }
    comments
}

fn comment_text(comments: &[Comment<'_>]) -> String {
    comments.iter().map(|comment| without_code(comment.text) + "\n").collect()
}

/// Returns a document without code blocks and inline code.
fn document_text(text: &str) -> String {
    without_code(&text.split("```").step_by(2).collect::<String>())
}

/// Replaces text in backquotes by a letter.
fn without_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // The part after an unpaired backquote is text.
    let is_code = |index: usize| index % 2 == 1 && index + 1 < parts.len();
    parts.iter().enumerate().map(|(index, part)| if is_code(index) { "x" } else { part }).collect()
}

/// Checks the rates of words in the texts together; the files with the most occurrences are in the message.
fn check_words(kind: &str, texts: Vec<(&Source, String)>) -> Vec<Violation> {
    let words: Vec<(&Source, Vec<String>)> = texts.into_iter().map(|(source, text)| (source, words(&text))).collect();
    let total: usize = words.iter().map(|(_, words)| words.len()).sum();
    let mut violations = Vec::new();
    for Limit { forms, per_thousand } in LIMITS {
        let counts: Vec<_> = words.iter().map(|(source, words)| (*source, occurrences(words, forms))).collect();
        let count: usize = counts.iter().map(|(_, count)| count).sum();
        let rate = 1000.0 * count as f64 / total.max(1) as f64;
        if rate > *per_thousand {
            let word = forms.join("|");
            let rule = format!("{word:?} {rate:.2} times per 1,000 words of {kind}, limit {per_thousand}");
            violations.extend(violation(&rule, counts));
        }
    }
    violations
}

fn check_openings(rust: &[(&Source, Vec<Comment<'_>>)]) -> Vec<Violation> {
    let summaries = |comments: &[Comment<'_>]| {
        comments.iter().filter(|comment| comment.is_summary && !comment.text.is_empty()).count()
    };
    let open = |comments: &[Comment<'_>]| {
        comments.iter().filter(|comment| comment.is_summary && opens_badly(comment.text)).count()
    };
    let total: usize = rust.iter().map(|(_, comments)| summaries(comments)).sum();
    let counts: Vec<_> = rust.iter().map(|(source, comments)| (*source, open(comments))).collect();
    let count: usize = counts.iter().map(|(_, count)| count).sum();
    let share = 100.0 * count as f64 / total.max(1) as f64;
    if share <= MAX_OPENINGS {
        return Vec::new();
    }
    let rule =
        format!("{share:.1} % of {total} doc summaries open with a question word or similar, limit {MAX_OPENINGS} %");
    violation(&rule, counts).into_iter().collect()
}

fn opens_badly(summary: &str) -> bool {
    let first = summary.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    OPENINGS.iter().any(|opening| first == Some(opening))
}

/// Returns a violation in the file with the highest count.
fn violation(rule: &str, mut counts: Vec<(&Source, usize)>) -> Option<Violation> {
    counts.sort_by_key(|(source, count)| (Reverse(*count), &source.path));
    let files: Vec<String> = counts
        .iter()
        .take(LISTED)
        .filter(|(_, count)| *count > 0)
        .map(|(source, count)| format!("{} ({count})", source.path))
        .collect();
    let (first, _) = counts.first()?;
    Some(Violation::new(first, 0, format!("{rule}; most in {}", files.join(", "))))
}

/// Returns the words of a text in lower case, without numbers.
fn words(text: &str) -> Vec<String> {
    let words = text
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'')
        .filter(|word| word.contains(|c: char| c.is_ascii_alphabetic()));
    words.map(str::to_lowercase).collect()
}

/// Counts the occurrences of words or phrases. A contraction such as `what's` counts as an occurrence.
fn occurrences(words: &[String], forms: &[&str]) -> usize {
    let matches = |word: &String, form: &str| word.split('\'').next() == Some(form);
    let phrase_count = |form: &&str| {
        let phrase: Vec<&str> = form.split(' ').collect();
        let is_phrase = |run: &&[String]| run.iter().zip(&phrase).all(|(word, form)| matches(word, form));
        words.windows(phrase.len()).filter(is_phrase).count()
    };
    forms.iter().map(phrase_count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    /// A text of 99 words without violations.
    fn filler() -> String {
        "word ".repeat(99)
    }

    #[test]
    fn frequent_word_in_comments_is_a_violation() {
        let text = format!("// {}\n    // What\nfn what() {{}}", filler());
        let expected = "a.rs: \"what\" 10.00 times per 1,000 words of comments, limit 2; most in a.rs (1)";
        assert_eq!(messages(&[("b.rs", "// word"), ("a.rs", &text)]).len(), 1);
        assert_eq!(messages(&[("a.rs", &text)]), [expected]);
        assert_eq!(messages(&[("a.rs", &text), ("b.rs", &format!("// {}", filler().repeat(9)))]), [""; 0]);
    }

    #[test]
    fn frequent_word_in_documents_is_a_violation() {
        let text = format!("{} whose", filler());
        let expected =
            "a.md: \"who|whose|whoever|whom\" 10.00 times per 1,000 words of documents, limit 1; most in a.md (1)";
        assert_eq!(messages(&[("a.md", &text)]), [expected]);
    }

    #[test]
    fn code_in_comments_and_documents_is_ignored() {
        assert_eq!(messages(&[("a.rs", &format!("// {} `what`", filler()))]), [""; 0]);
        assert_eq!(messages(&[("a.md", &format!("{} `what`\n```\nwhat\n```\n", filler()))]), [""; 0]);
    }

    #[test]
    fn phrases_and_contractions_are_counted() {
        let count = |text: &str, forms: &[&str]| occurrences(&words(text), forms);
        assert_eq!(count("So many, so\nmany; many so", &["so many"]), 2);
        assert_eq!(count("what's what whatever somewhat", &["what"]), 2);
        assert_eq!(count("told, tells", &["told", "tells", "tell"]), 2);
    }

    #[test]
    fn summaries_must_not_open_with_question_words() {
        let good = "/// Returns it.\nfn f() {}\n";
        let bad = "/// Whether it is.\n/// Where it is.\nfn f() {}\n// How\n";
        let expected =
            "a.rs: 50.0 % of 2 doc summaries open with a question word or similar, limit 4 %; most in a.rs (1)";
        assert_eq!(messages(&[("a.rs", &format!("{good}{bad}"))]), [expected]);
        assert_eq!(messages(&[("a.rs", &format!("{}{bad}", good.repeat(24)))]), [""; 0]);
    }
}
