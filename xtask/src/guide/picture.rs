//! Pictures of the guide: SVG files that memtrace has written, and pages in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::shape;
use crate::workspace::Workspace;

/// Time limit of the browser in seconds.
const BROWSER_DEADLINE: &str = "120";

/// Time for the scripts of a page in milliseconds. The browser does not wait for this time, because it uses a virtual clock.
const SCRIPT_TIME: u32 = 5000;

/// Elements whose texts are the outline of a page.
const OUTLINE: [&str; 8] = ["h1", "h2", "h3", "th", "dt", "label", "button", "option"];

/// Folder of the outlines of the pages in PNG files, which have no text to compare.
const OUTLINES: &str = "xtask/src/guide/outlines";

/// Row of the table of pictures.
pub(super) struct Picture {
    /// Path in the checkout.
    pub(super) path: &'static str,
    pub(super) source: Source,
}

pub(super) enum Source {
    /// SVG file in the folder of the scenario.
    Svg(&'static str),
    /// PNG file of a page. In the address, `FOLDER` is the folder of the scenario, and `WORKSPACE` the top folder of the
    /// checkout. `script` runs when the page is loaded. If there is a script, the address must be the address of a file.
    Page { url: &'static str, size: (u32, u32), script: &'static str },
}

/// Picture that a scenario has made.
pub(super) struct MadePicture {
    /// Path in the checkout.
    path: &'static str,
    file: PathBuf,
    shape: Vec<String>,
    is_png: bool,
}

impl Picture {
    /// Makes the picture. `folder` has the files of the scenario.
    pub(super) fn make(&self, workspace: &Workspace, folder: &Path) -> Result<MadePicture> {
        self.file_and_shape(workspace, folder)
            .map(|(file, shape, is_png)| MadePicture { path: self.path, file, shape, is_png })
            .with_context(|| format!("cannot make {}", self.path))
    }

    fn file_and_shape(&self, workspace: &Workspace, folder: &Path) -> Result<(PathBuf, Vec<String>, bool)> {
        match self.source {
            Source::Svg(name) => {
                let file = folder.join(name);
                let shape = shape_of_svg(&read(&file)?);
                Ok((file, shape, false))
            }
            Source::Page { url, size, script } => {
                let url = url.replace("FOLDER", &folder.display().to_string());
                let url = url.replace("WORKSPACE", &workspace.root().display().to_string());
                let url = if script.is_empty() { url } else { with_script(&url, script)? };
                let file = folder.join(Path::new(self.path).file_name().context("the path has no file name")?);
                browse(folder, &url, size, &format!("--screenshot={}", file.display()))?;
                let shape = shape_of_page(&browse(folder, &url, size, "--dump-dom")?);
                Ok((file, shape, true))
            }
        }
    }
}

impl MadePicture {
    /// Writes the picture, and the outline of a page, into the checkout.
    pub(super) fn write(&self, workspace: &Workspace) -> Result<()> {
        fs::copy(&self.file, workspace.join(self.path)).with_context(|| format!("cannot write {}", self.path))?;
        if !self.is_png {
            return Ok(());
        }
        let outline = self.outline(workspace);
        fs::create_dir_all(workspace.join(OUTLINES)).with_context(|| format!("cannot create {OUTLINES}"))?;
        fs::write(&outline, self.shape.join("\n") + "\n").with_context(|| format!("cannot write {}", outline.display()))
    }

    /// Returns the difference between the picture in the checkout and this picture; `None` if they do not differ.
    pub(super) fn difference(&self, workspace: &Workspace) -> Result<Option<String>> {
        let before: Vec<String> = if self.is_png {
            let outline = self.outline(workspace);
            read(&outline)?.lines().map(str::to_owned).collect()
        } else {
            shape_of_svg(&read(&workspace.join(self.path))?)
        };
        Ok(shape::difference(&before, &self.shape).map(|difference| format!("{}:\n{difference}", self.path)))
    }

    fn outline(&self, workspace: &Workspace) -> PathBuf {
        let name = Path::new(self.path).with_extension("txt");
        workspace.join(OUTLINES).join(name.file_name().unwrap_or_default())
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Copies a page, and appends a script that runs when the page is loaded. Returns the address of the copy.
fn with_script(url: &str, script: &str) -> Result<String> {
    let path = url.strip_prefix("file://").with_context(|| format!("{url} is no file"))?;
    let page = read(Path::new(path))?;
    let (before, after) = page.rsplit_once("</body>").with_context(|| format!("{path} has no body"))?;
    let copy = format!("{path}.with-script.html");
    let page = format!("{before}<script>window.addEventListener('load', () => {{ {script} }});</script></body>{after}");
    fs::write(&copy, page).with_context(|| format!("cannot write {copy}"))?;
    Ok(format!("file://{copy}"))
}

/// Opens a page in a browser. Returns the output of the browser.
fn browse(folder: &Path, url: &str, (width, height): (u32, u32), action: &str) -> Result<String> {
    let mut browser = Command::new("timeout");
    browser.args(["--kill-after=10", BROWSER_DEADLINE, "chromium-headless-shell"]);
    browser.args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]);
    browser.arg(format!("--window-size={width},{height}")).arg(format!("--virtual-time-budget={SCRIPT_TIME}"));
    browser.arg(action).arg(url).env("HOME", folder.join("home"));
    let output = browser.stdin(Stdio::null()).output().context("cannot run the browser")?;
    if !output.status.success() {
        bail!("the browser failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the shape of the texts of an SVG file, without the texts of frames of a flame graph.
fn shape_of_svg(svg: &str) -> Vec<String> {
    let (before, rest) = svg.split_once("<svg id=\"frames\"").unwrap_or((svg, ""));
    let after = rest.split_once("</svg>").map_or("", |(_, after)| after);
    let texts: Vec<_> = [before, after].into_iter().flat_map(|part| elements(part, &["text"])).collect();
    shape::of(&texts.join("\n\n"), &[])
}

/// Returns the shape of the outline of a page.
fn shape_of_page(html: &str) -> Vec<String> {
    shape::of(&elements(html, &OUTLINE).join("\n\n"), &[])
}

/// Returns the texts of the elements with these names, in their order. Elements without text are left out.
fn elements(markup: &str, names: &[&str]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = markup;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..length];
        let end = rest.find(&format!("</{name}"));
        if ["script", "style"].contains(&name) {
            rest = &rest[end.unwrap_or(rest.len())..];
        } else if names.contains(&name)
            && let (Some(begin), Some(end)) = (rest.find('>'), end)
            && begin < end
        {
            texts.push(text(&rest[begin + 1..end]));
        }
    }
    texts.retain(|text| !text.is_empty());
    texts
}

/// Returns the text of markup, without tags.
fn text(markup: &str) -> String {
    let mut text = String::new();
    for (index, part) in markup.split('<').enumerate() {
        text.push_str(if index == 0 { part } else { part.split_once('>').map_or("", |(_, text)| text) });
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_flame_graph_have_no_frames() {
        let svg = "<svg><style>text { }</style><script>a < b</script><text id=\"title\" x=\"1\">live bytes of pid 7</text>\
                   <text id=\"subtitle\">8.54 MiB in 10 s · nothing lost</text><text id=\"details\"> </text>\
                   <svg id=\"frames\"><g><title>main (8)</title><text>main</text></g></svg><text>0 s</text></svg>";
        let expected = ["live bytes of pid #", "", "# in # · nothing lost", "", "#"];
        assert_eq!(shape_of_svg(svg), expected);
        assert_eq!(shape_of_svg(&svg.replace("nothing lost", "lost")).len(), expected.len());
    }

    #[test]
    fn outline_has_headings_and_buttons() {
        let html = "<h1>memtrace: <b>pid 7</b></h1><script>element('<h2>no</h2>')</script><p>text</p>\
                    <table><th>PID</th><th></th></table><header><h2 hidden>Locks &amp; waits</h2></header>\
                    <option value=\"1\">live bytes</option>";
        let expected = ["memtrace: pid #", "", "PID", "", "Locks & waits", "", "live bytes"];
        assert_eq!(shape_of_page(html), expected);
    }
}
