//! `cargo xtask docs`: writes docs/json.md and docs/json.schema.json from the types of the JSON, and
//! docs/reference.md from the definition of the command line.

use std::collections::{BTreeSet, VecDeque};
use std::fs;

use anyhow::{Context as _, Result};
use memtrace_json as json;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::workspace::Workspace;
use crate::{bpf, command, ui};

/// JSON format: the heading of its section of docs/json.md, and the schema of its type.
type Format = (&'static str, fn(&mut SchemaGenerator) -> schemars::Schema);

const FORMATS: [Format; 8] = [
    ("JSON of a report", SchemaGenerator::subschema_for::<json::Report<'static>>),
    ("JSON of `memtrace explain`", SchemaGenerator::subschema_for::<json::Explanation<'static>>),
    (
        "JSON of `memtrace explain` for several processes",
        SchemaGenerator::subschema_for::<json::SelectionExplanation<'static>>,
    ),
    ("JSON of `memtrace diff`", SchemaGenerator::subschema_for::<json::Difference<'static>>),
    ("JSON of `memtrace accounts`", SchemaGenerator::subschema_for::<json::Accounts<'static>>),
    ("JSON of `memtrace threads`", SchemaGenerator::subschema_for::<json::Interval<'static>>),
    ("JSON of `memtrace wss`", SchemaGenerator::subschema_for::<json::WorkingSets<'static>>),
    ("JSON of `memtrace doctor`", SchemaGenerator::subschema_for::<json::Diagnosis<'static>>),
];

const REFERENCE: &str = "docs/reference.md";

/// Writes the files.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for (path, text) in files()? {
        fs::write(workspace.join(path), text).with_context(|| format!("cannot write {path}"))?;
        ui::note(path);
    }
    // An example of the package memtrace writes this page, because only this package has the definition of the command
    // line.
    bpf::run(workspace)?;
    let mut example = command::cargo();
    example.current_dir(workspace.root()).args(["run", "--quiet", "--package", "memtrace", "--example", "reference"]);
    let file = fs::File::create(workspace.join(REFERENCE)).with_context(|| format!("cannot write {REFERENCE}"))?;
    command::run(example.stdout(file))?;
    ui::note(REFERENCE);
    Ok(())
}

/// Returns the paths and the texts of the files.
fn files() -> Result<[(&'static str, String); 2]> {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let roots = FORMATS.map(|(heading, schema)| (heading, schema(&mut generator).to_value()));
    // No key has one of these two types, so the generator has not found them. They are needed because other types
    // contain all of their keys.
    generator.subschema_for::<json::GroupRuns<'static>>();
    generator.subschema_for::<json::KernelCounts>();
    let page = Page { definitions: generator.take_definitions(true) };
    let roots_of_schema = Value::from_iter(roots.each_ref().map(|(_, root)| root.clone()));
    let definitions = page.definitions.iter().map(|(name, definition)| format!("\"{name}\":{definition}"));
    let definitions = definitions.collect::<Vec<_>>().join(",\n");
    let schema = format!(
        "{{\n\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\n\"title\":\"JSON of memtrace\",\n\
         \"anyOf\":{roots_of_schema},\n\"$defs\":{{\n{definitions}\n}}}}\n"
    );
    Ok([("docs/json.md", page.text(&roots)), ("docs/json.schema.json", schema)])
}

/// Schemas of the types, with their documentation, by name.
struct Page {
    definitions: Map<String, Value>,
}

impl Page {
    fn text(&self, roots: &[(&str, Value)]) -> String {
        let mut text = format!(
            "<!-- Written by `cargo xtask docs` from the comments in crates/json. -->\n\n# JSON reference\n\n{}",
            json::INTRODUCTION
        );
        let mut known = BTreeSet::new();
        for (heading, root) in roots {
            let mut waiting = VecDeque::from_iter(referenced(root));
            known.extend(waiting.iter().copied());
            let mut heading = format!("# {heading}");
            while let Some(name) = waiting.pop_front() {
                let definition = &self.definitions[name];
                let parts = self.parts(name);
                // The keys come before the sections of the description.
                let description = description(definition);
                let (summary, sections) = description.split_at(description.find("\n### ").unwrap_or(description.len()));
                text += &format!("\n{heading}\n\n{}\n{}", summary.trim_end(), keys(definition, &parts));
                if !sections.is_empty() {
                    text += &format!("{sections}\n");
                }
                let mut next = referenced(definition);
                next.extend(parts.iter().map(|(name, _)| *name));
                // The sections of the new types come next, before the sections that were already waiting.
                for name in next.into_iter().filter(|name| known.insert(name)).collect::<Vec<_>>().into_iter().rev() {
                    waiting.push_front(name);
                }
                heading = waiting.front().map(|name| format!("## {}", title(name))).unwrap_or_default();
            }
        }
        text
    }

    /// Returns the types that the type `name` contains, each with its keys, the largest type first. `name` contains
    /// another type if the other type has at least two keys, and all of these are keys of `name` too.
    fn parts(&self, name: &str) -> Vec<(&str, Vec<Property<'_>>)> {
        let all = properties(&self.definitions[name]);
        let is_other =
            |other: &String, definition: &Value| other != name && definition["additionalProperties"].is_null();
        let others = self.definitions.iter().filter(|(other, definition)| is_other(other, definition));
        let mut parts: Vec<_> = others.map(|(other, definition)| (other.as_str(), properties(definition))).collect();
        parts.retain(|(_, part)| part.len() > 1 && part.iter().all(|property| all.contains(property)));
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.len()));
        parts
    }
}

/// Key, and the schema of its values.
type Property<'a> = (&'a String, &'a Value);

fn properties(definition: &Value) -> Vec<Property<'_>> {
    definition["properties"].as_object().into_iter().flatten().collect()
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// Returns a table of the keys of a type. The keys of a contained type share one row.
fn keys(definition: &Value, parts: &[(&str, Vec<Property<'_>>)]) -> String {
    let required = definition["required"].as_array();
    let mut rows: Vec<String> = Vec::new();
    for property in properties(definition) {
        let (key, schema) = property;
        let is_required = required.is_some_and(|names| names.contains(&json!(key)));
        let optional = if is_required { "" } else { "optional " };
        if let Some((name, _)) = parts.iter().find(|(_, keys)| keys.contains(&property)) {
            let all = format!("| all keys of {} |", type_of(&reference(name), false));
            if !rows.iter().any(|row| row.starts_with(&all)) {
                rows.push(format!("{all} {optional}| |\n"));
            }
        } else {
            let kind = type_of(schema, false);
            let kind = if is_required { &kind } else { kind.strip_suffix(" or `null`").unwrap_or(&kind) };
            rows.push(format!("| `{key}` | {optional}{kind} | {} |\n", description(schema).replace('\n', " ")));
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n| key | type | meaning |\n|---|---|---|\n{}", rows.concat()),
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Returns the names of the types that a schema refers to, in the order of the references.
fn referenced(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(keys) => keys
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("$ref", Value::String(path)) => path.strip_prefix("#/$defs/").into_iter().collect(),
                _ => referenced(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(referenced).collect(),
        _ => Vec::new(),
    }
}

/// Returns the heading of a type: `Stack end` for `StackEnd`.
fn title(name: &str) -> String {
    let mut title = String::new();
    for (index, character) in name.chars().enumerate() {
        match character.is_uppercase() && index > 0 {
            true => title.extend([' '].into_iter().chain(character.to_lowercase())),
            false => title.push(character),
        }
    }
    title
}

/// Returns the name of a type, as a link if the type has a section. `many` selects the plural.
fn type_of(schema: &Value, many: bool) -> String {
    let plural = |word: &str| if many { format!("{word}s") } else { word.to_owned() };
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        let title = title(name).to_lowercase();
        let end = match many {
            true if title.ends_with("ss") => "es",
            true if !title.ends_with('s') => "s",
            _ => "",
        };
        return format!("[{title}{end}](#{})", title.replace(' ', "-"));
    }
    let alternatives = schema["anyOf"].as_array().map(|schemas| schemas.iter().map(|one| type_of(one, many)).collect());
    let simple = |kind: &Value| match kind.as_str().unwrap_or_default() {
        "array" if schema.get("prefixItems").is_some() => plural("pair"),
        "array" => format!("{} of {}", plural("list"), type_of(&schema["items"], true)),
        "object" => format!("{} of {}", plural("object"), type_of(&schema["additionalProperties"], true)),
        "string" => plural("text"),
        "null" => String::from("`null`"),
        other => plural(other),
    };
    let mut words: Vec<String> = alternatives.unwrap_or_else(|| match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(simple).collect(),
        kind => vec![simple(kind)],
    });
    words.dedup();
    words.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_the_json_are_current() {
        let workspace = Workspace::find().unwrap();
        for (path, text) in files().unwrap() {
            let current = fs::read_to_string(workspace.join(path)).unwrap() == text;
            assert!(current, "{path} is not current: run `cargo xtask docs`");
        }
    }

    #[test]
    fn every_key_is_documented() {
        let mut missing = Vec::new();
        let (_, text) = &files().unwrap()[1];
        let schema: Value = serde_json::from_str(text).unwrap();
        for (name, definition) in schema["$defs"].as_object().unwrap() {
            let keys = properties(definition).into_iter().filter(|(_, schema)| description(schema).is_empty());
            missing.extend(keys.map(|(key, _)| format!("{name}.{key}")));
            if description(definition).is_empty() {
                missing.push(name.clone());
            }
        }
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn types_are_words() {
        let of = |schema: Value| type_of(&schema, false);
        assert_eq!(of(json!({ "type": ["integer", "null"] })), "integer or `null`");
        assert_eq!(
            of(json!({ "type": "array", "items": { "$ref": "#/$defs/StackEnd" } })),
            "list of [stack ends](#stack-end)"
        );
        let pairs = json!({ "type": "array", "items": { "type": "array", "prefixItems": [] } });
        assert_eq!(of(pairs), "list of pairs");
        let object = json!({ "type": "object", "additionalProperties": { "type": "number" } });
        assert_eq!(of(json!({ "anyOf": [object, { "type": "null" }] })), "object of numbers or `null`");
    }
}
