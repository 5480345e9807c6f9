//! Runtimes that generate code, and the advice to the user if the names of this code are missing.

use std::path::Path;

use memtrace_model::{NoPerfMap, ProcessImage};

/// A runtime that generates code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// V8 in node.
    Node,
    /// The Java virtual machine of OpenJDK.
    HotSpot,
    Other,
}

/// Advice if stacks were cut because compiled Java code keeps no frame pointers.
pub(super) const ADVICE_ON_FRAME_POINTERS: &str =
    "stacks end in compiled Java code; start Java with -XX:+PreserveFramePointer for complete ones";

impl Runtime {
    pub(super) fn of(image: &ProcessImage) -> Self {
        let objects = image.objects();
        let mut names = objects.filter_map(|object| object.path.file_name()?.to_str());
        let executable = image.exe.as_deref().and_then(Path::file_name);
        if names.clone().any(|name| name == "libjvm.so") {
            Self::HotSpot
        } else if executable.is_some_and(|name| name == "node" || name == "nodejs")
            || names.any(|name| name == "node" || name.starts_with("libnode.so"))
        {
            Self::Node
        } else {
            Self::Other
        }
    }

    /// Returns a note for the report: the reason for missing names and, if there is no perf map, an option that makes the
    /// runtime write the names.
    pub(super) fn advice_on_names(self, reason: NoPerfMap) -> String {
        let reason = match reason {
            NoPerfMap::Missing => "no perf map",
            NoPerfMap::NotOwned => return String::from("its perf map belongs to another user and was not read"),
            NoPerfMap::NotRegular => return String::from("its perf map is not a regular file and was not read"),
        };
        let advice = match self {
            Self::Node => "start node with --perf-basic-prof",
            Self::HotSpot => {
                "run `jcmd PID Compiler.perfmap` during the trace (JDK 17 and newer), or start Java with \
                 -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
            }
            Self::Other => "the program has to write /tmp/perf-PID.map",
        };
        format!("generated code has no names ({reason}); {advice}")
    }
}

/// Returns true if HotSpot code with this name keeps a frame pointer under all options. This is true for the interpreter and
/// for the stubs that C2 does not compile (`StubRoutines`; `StubFrame` in c1_Runtime1_x86.cpp).
pub(super) fn hotspot_keeps_frame_pointer(name: &str) -> bool {
    name == "Interpreter" || name.starts_with("StubRoutines") || name.ends_with(" Runtime1 stub")
}
