//! `cargo xtask guide`: writes the outputs and pictures of README.md and the guide from real runs, or compares them with new
//! ones.

mod page;
mod picture;
mod sample;
mod scenario;
mod shape;
mod stage;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};
use picture::MadePicture;
use sample::{Output, Outputs, Sample};
use scenario::{Golden, Scenario};
use stage::{Programs, Stage};
use table::{GOLDEN, KEPT, SCENARIOS};

use crate::privilege::Root;
use crate::tier::Tier;
use crate::workspace::Workspace;
use crate::{bpf, command, demo, setup, ui};

/// Folder of the pages, which README.md precedes.
const GUIDE: &str = "docs/guide";

/// Option that compares instead of writing.
const CHECK: &str = "--check";

/// Performs the scenarios, or those that `options` name, and writes their samples and pictures. With `--check`, compares them
/// with the pages.
///
/// # Errors
///
/// A scenario fails, or with `--check` a page differs.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let (options, names): (Vec<&String>, Vec<&String>) = options.iter().partition(|word| word.starts_with('-'));
    if let Some(unknown) = options.iter().find(|option| option.as_str() != CHECK) {
        bail!("unknown option {unknown:?}; there is {CHECK}");
    }
    let all = || SCENARIOS.iter().map(|scenario| scenario.name);
    if let Some(unknown) = names.iter().find(|name| !all().any(|known| known == name.as_str())) {
        bail!("there is no scenario {unknown}; there are {}", all().collect::<Vec<_>>().join(", "));
    }
    let chosen =
        SCENARIOS.iter().filter(|scenario| names.is_empty() || names.iter().any(|name| *name == scenario.name));
    let chosen: Vec<_> = chosen.collect();
    let root = Root::obtain().context("memtrace traces as root")?;
    setup::for_tests(workspace, Tier::Long)?;
    bpf::run(workspace)?;
    let results = perform(workspace, root, &chosen)?;
    let problems = if options.is_empty() { results.write(workspace)? } else { results.compare(workspace)? };
    for kept in KEPT {
        ui::note(&format!("as it is: {} ({})", kept.name, kept.reason));
    }
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("\n")) }
}

/// Performs all scenarios. Returns the problems: pages that differ from the outputs of memtrace, and scenarios that failed. The
/// requirements of the long tier must be installed, and the BPF objects current.
///
/// # Errors
///
/// memtrace or the demo service cannot be built, or a page cannot be read.
pub(crate) fn check_in_tests(workspace: &Workspace, root: Root) -> Result<Vec<String>> {
    perform(workspace, root, &SCENARIOS.iter().collect::<Vec<_>>())?.compare(workspace)
}

/// Samples and pictures that scenarios have made.
#[derive(Default)]
struct Made {
    samples: BTreeMap<&'static str, (Sample, String)>,
    pictures: Vec<MadePicture>,
    /// Failures of scenarios, samples and pictures.
    problems: Vec<String>,
}

fn perform(workspace: &Workspace, root: Root, scenarios: &[&Scenario]) -> Result<Made> {
    let unknown = without_rows(&pages(workspace)?)?;
    if !unknown.is_empty() {
        bail!("{}", unknown.join("\n"));
    }
    let programs = Programs { memtrace: command::build_release(workspace)?, demo: demo::build_service(workspace)? };
    let mut made = Made::default();
    for golden in GOLDEN {
        let content = golden.content(workspace)?;
        made.samples.insert(golden.sample.name, (golden.sample, content));
    }
    for scenario in scenarios {
        ui::step(&format!("Performing the scenario {}", scenario.name));
        if let Err(error) = made.add(workspace, root, &programs, scenario) {
            made.problems.push(format!("scenario {}: {error:#}", scenario.name));
        }
    }
    Ok(made)
}

impl Made {
    /// Performs a scenario.
    ///
    /// # Errors
    ///
    /// A step fails. Then the scenario makes nothing.
    fn add(&mut self, workspace: &Workspace, root: Root, programs: &Programs, scenario: &Scenario) -> Result<()> {
        let mut stage = Stage::new(workspace, root, programs, scenario)?;
        scenario.steps.iter().try_for_each(|step| stage.perform(step))?;
        for sample in scenario.samples {
            match sample.content(stage.outputs()) {
                Ok(content) => drop(self.samples.insert(sample.name, (*sample, content))),
                Err(error) => self.problems.push(format!("{error:#}")),
            }
        }
        for picture in scenario.pictures {
            match picture.make(workspace, stage.folder()) {
                Ok(picture) => self.pictures.push(picture),
                Err(error) => self.problems.push(format!("{error:#}")),
            }
        }
        Ok(())
    }

    /// Writes the samples into the pages, and the pictures. Returns the problems.
    fn write(self, workspace: &Workspace) -> Result<Vec<String>> {
        let content = |name: &str| self.samples.get(name).map(|(_, content)| content.clone());
        for (path, text) in pages(workspace)? {
            let new = page::with_samples(&text, content).with_context(|| path.clone())?;
            if new != text {
                fs::write(workspace.join(&path), new).with_context(|| format!("cannot write {path}"))?;
                ui::note(&format!("written: {path}"));
            }
        }
        for picture in &self.pictures {
            picture.write(workspace)?;
        }
        Ok(self.problems)
    }

    /// Compares the samples with the pages, and the new pictures with the pictures in the checkout. Returns the
    /// differences, and the problems.
    fn compare(mut self, workspace: &Workspace) -> Result<Vec<String>> {
        for (path, text) in pages(workspace)? {
            for block in page::blocks(&text).with_context(|| path.clone())? {
                let Some((sample, content)) = block.marker.and_then(|name| self.samples.get(name)) else { continue };
                let shape = |text: &str| shape::of(text, sample.varying);
                if let Some(difference) = shape::difference(&shape(block.content(&text)), &shape(content)) {
                    let (line, name) = (block.line, sample.name);
                    self.problems.push(format!(
                        "{path}:{line}: the sample {name} is not as memtrace prints it: run `cargo xtask guide`\n{difference}"
                    ));
                }
            }
        }
        for picture in &self.pictures {
            match picture.difference(workspace) {
                Ok(difference) => self.problems.extend(difference),
                Err(error) => self.problems.push(format!("{error:#}: run `cargo xtask guide`")),
            }
        }
        Ok(self.problems)
    }
}

impl Golden {
    fn content(&self, workspace: &Workspace) -> Result<String> {
        let path = self.path;
        let text = fs::read_to_string(workspace.join(path)).with_context(|| format!("cannot read {path}"))?;
        self.sample.content(&Outputs::from([("golden", Output { command: String::new(), text })]))
    }
}

/// Returns the names of all samples: in the table, from golden files, and kept from earlier runs.
fn sample_names() -> impl Iterator<Item = &'static str> {
    let made = SCENARIOS.iter().flat_map(|scenario| scenario.samples).map(|sample| sample.name);
    let golden = GOLDEN.iter().map(|golden| golden.sample.name);
    made.chain(golden).chain(KEPT.iter().map(|kept| kept.name).filter(|name| !name.contains('/')))
}

/// Returns the paths of all pictures: in the table, and kept from earlier runs.
fn picture_paths() -> impl Iterator<Item = &'static str> {
    let made = SCENARIOS.iter().flat_map(|scenario| scenario.pictures).map(|picture| picture.path);
    made.chain(KEPT.iter().map(|kept| kept.name).filter(|name| name.contains('/')))
}

/// Returns a line for each output and each picture of the pages that no row of the table makes.
fn without_rows(pages: &[(String, String)]) -> Result<Vec<String>> {
    let (samples, pictures): (BTreeSet<_>, BTreeSet<_>) = (sample_names().collect(), picture_paths().collect());
    let mut problems = Vec::new();
    for (path, text) in pages {
        for block in page::blocks(text).with_context(|| path.clone())? {
            let unknown = block.marker.filter(|name| !samples.contains(*name));
            let unknown = unknown.map(|name| format!("line {}: the sample {name} is not in the table", block.line));
            problems.extend(page::problem(&block).or(unknown).map(|problem| format!("{path}: {problem}")));
        }
        for target in page::pictures(text) {
            let picture = page::resolve(path, target)?;
            if !pictures.contains(picture.as_str()) {
                problems.push(format!("{path}: the picture {picture} is not in the table"));
            }
        }
    }
    Ok(problems)
}

/// Returns the paths and the texts of README.md and of the pages of the guide.
fn pages(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let entries = fs::read_dir(workspace.join(GUIDE)).with_context(|| format!("cannot list {GUIDE}"))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut paths: Vec<_> = names.collect::<Result<_>>()?;
    paths.retain(|name: &String| name.ends_with(".md"));
    paths.sort();
    let paths = std::iter::once(String::from("README.md")).chain(paths.iter().map(|name| format!("{GUIDE}/{name}")));
    let read = |path: String| {
        let text = fs::read_to_string(workspace.join(&path)).with_context(|| format!("cannot read {path}"))?;
        Ok((path, text))
    };
    paths.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::scenario::Step;
    use super::*;

    fn all_pages() -> (Workspace, Vec<(String, String)>) {
        let workspace = Workspace::find().unwrap();
        let pages = pages(&workspace).unwrap();
        (workspace, pages)
    }

    #[test]
    fn every_output_and_picture_has_a_row() {
        let (_, pages) = all_pages();
        assert_eq!(without_rows(&pages).unwrap(), [""; 0]);
    }

    #[test]
    fn output_without_a_row_is_found() {
        let page = |text: &str| vec![(String::from("docs/guide/x.md"), text.to_owned())];
        let problems = without_rows(&page("<!-- sample: no-such-sample -->\n```text\n```\n")).unwrap();
        assert_eq!(problems, ["docs/guide/x.md: line 2: the sample no-such-sample is not in the table"]);
        let problems = without_rows(&page("![A picture](x.png)\n")).unwrap();
        assert_eq!(problems, ["docs/guide/x.md: the picture docs/guide/x.png is not in the table"]);
        assert_eq!(without_rows(&page("```text\n```\n")).unwrap().len(), 1);
    }

    #[test]
    fn every_row_is_in_one_page() {
        let (workspace, pages) = all_pages();
        let blocks = pages.iter().flat_map(|(_, text)| page::blocks(text).unwrap());
        let mut markers: Vec<&str> = blocks.filter_map(|block| block.marker).collect();
        let mut rows: Vec<&str> = sample_names().collect();
        markers.sort_unstable();
        rows.sort_unstable();
        assert_eq!(markers, rows);
        let targets = pages.iter().flat_map(|(path, text)| {
            page::pictures(text).into_iter().map(|target| page::resolve(path, target).unwrap()).collect::<Vec<_>>()
        });
        let shown: BTreeSet<String> = targets.collect();
        for path in picture_paths() {
            assert!(shown.contains(path), "{path}");
            assert!(workspace.join(path).exists(), "{path}");
        }
    }

    #[test]
    fn samples_are_of_steps_of_their_scenario() {
        for scenario in SCENARIOS {
            let mut outputs = BTreeSet::new();
            for step in scenario.steps {
                let is_new = match step {
                    Step::Run { name, .. } | Step::Wait(name) | Step::Interrupt(name) => outputs.insert(*name),
                    Step::File { .. } | Step::Prepare(_) | Step::Start { .. } => true,
                };
                assert!(is_new, "two steps of {} have the same name", scenario.name);
            }
            for sample in scenario.samples {
                let missing: Vec<_> = sample.steps().filter(|name| !outputs.contains(name)).collect();
                assert_eq!(missing, [""; 0], "{}", sample.name);
            }
        }
    }

    #[test]
    fn variables_are_not_prefixes_of_others() {
        for scenario in SCENARIOS {
            let starts = scenario.steps.iter().filter_map(|step| match step {
                Step::Start { variable, .. } => Some(*variable),
                _ => None,
            });
            let names: Vec<&str> = ["PATH", "WORKSPACE", "DEMO"].into_iter().chain(starts).collect();
            for (index, name) in names.iter().enumerate() {
                let others = names.iter().enumerate().filter(|(other, _)| *other != index);
                let longer: Vec<_> = others.filter(|(_, other)| other.starts_with(name)).collect();
                assert!(longer.is_empty(), "{}: {name} {longer:?}", scenario.name);
            }
        }
    }

    #[test]
    fn excerpts_of_golden_files_are_current() {
        let (workspace, pages) = all_pages();
        for golden in GOLDEN {
            let content = golden.content(&workspace).unwrap();
            let is_shown = |(_, text): &(String, String)| {
                let blocks = page::blocks(text).unwrap();
                blocks.iter().any(|block| block.marker == Some(golden.sample.name) && block.content(text) == content)
            };
            assert!(pages.iter().any(is_shown), "{}: run `cargo xtask guide`\n{content}", golden.sample.name);
        }
    }
}
