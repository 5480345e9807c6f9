//! BPF object for uprobe_multi links. Its programs use the maps that aya has created.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::programs::ProgramError;
use aya_obj::{Object, ProgramSection, VerifierLog};

use crate::kernel::bpf_syscall::{self, DebugInfo, ProgramCode, Records};
use crate::kernel::error::KernelError;

/// Relocated programs that are ready to load.
pub(super) struct BpfObject {
    object: Object,
    btf: Option<OwnedFd>,
    /// Kept open, because the programs refer to their maps by descriptor.
    _maps: Vec<OwnedFd>,
}

/// First size of the verifier log in bytes. The log grows tenfold while it is too small.
const FIRST_LOG: usize = 1 << 16;
/// Largest size of the verifier log in bytes.
const LONGEST_LOG: usize = 1 << 24;

impl BpfObject {
    /// Relocates the programs of the object `bytes`. `ebpf` was loaded from the same object.
    ///
    /// This does the same as `EbpfLoader::load` of aya, except that it creates no maps.
    pub(super) fn new(bytes: &[u8], ebpf: &Ebpf) -> Result<Self, KernelError> {
        const ACTION: &str = "load the BPF programs";
        let failed = |error: &(dyn std::error::Error + 'static)| KernelError::from_error(ACTION, error);
        let mut object = Object::parse(bytes).map_err(|error| failed(&error))?;
        // Drop the programs that aya loads: relocation copies all called functions into each remaining program.
        object.programs.retain(|_, program| is_at_probe(&program.section));
        let features = aya::features();
        let btf = match features.btf() {
            Some(supported) => object.fixup_and_sanitize_btf(supported).map_err(|error| failed(&error))?,
            None => None,
        };
        let btf = btf.map(|btf| bpf_syscall::load_btf(&btf.to_bytes())).transpose();
        let btf =
            btf.map_err(|error| KernelError::from_io(ACTION, error, String::from("the kernel refuses their BTF")))?;
        let definitions = std::mem::take(&mut object.maps);
        let mut maps = Vec::new();
        let mut relocations = Vec::new();
        for (name, definition) in &definitions {
            // aya creates no map for global data on kernels that do not support it.
            let Some(data) = ebpf.map(name).and_then(data) else { continue };
            let map = data.fd().as_fd().try_clone_to_owned();
            let map = map.map_err(|error| {
                KernelError::from_io(ACTION, error, format!("cannot duplicate the descriptor of {name}"))
            })?;
            relocations.push((name.as_str(), map.as_raw_fd(), definition));
            maps.push(map);
        }
        let sections: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
        object.relocate_maps(relocations.into_iter(), &sections).map_err(|error| failed(&error))?;
        object.relocate_calls(&sections).map_err(|error| failed(&error))?;
        object.sanitize_functions(features);
        Ok(Self { object, btf, _maps: maps })
    }

    /// Loads the program `name`. The second result is true if the program runs at returns.
    pub(super) fn load(&self, name: &str) -> Result<(OwnedFd, bool), KernelError> {
        let missing = || KernelError::missing(name);
        let program = self.object.programs.get(name).ok_or_else(missing)?;
        let function = self.object.functions.get(&program.function_key()).ok_or_else(missing)?;
        let at_return = match program.section {
            ProgramSection::UProbe { .. } => false,
            ProgramSection::URetProbe { .. } => true,
            _ => return Err(missing()),
        };
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let info = |btf| DebugInfo {
            btf,
            functions: Records { bytes: &functions, count: function.func_info.len() },
            lines: Records { bytes: &lines, count: function.line_info.len() },
        };
        let code = ProgramCode {
            name,
            license: &program.license,
            instructions: &function.instructions,
            info: self.btf.as_ref().map(|btf| info(btf.as_fd())),
        };
        let loaded = load(&code).map_err(|error| KernelError::from_load(&format!("load the program {name}"), &error));
        Ok((loaded?, at_return))
    }
}

const fn is_at_probe(section: &ProgramSection) -> bool {
    matches!(section, ProgramSection::UProbe { .. } | ProgramSection::URetProbe { .. })
}

/// Loads a program. If the kernel refuses the program, loads it again with a log. A log is long and takes time.
fn load(code: &ProgramCode<'_>) -> Result<OwnedFd, ProgramError> {
    let mut log = Vec::new();
    loop {
        let error = match bpf_syscall::load_program(code, &mut log) {
            Ok(program) => return Ok(program),
            Err(error) => error,
        };
        let is_truncated = error.raw_os_error() == Some(libc::ENOSPC) && log.len() < LONGEST_LOG;
        if !log.is_empty() && !is_truncated {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..end]).into_owned();
            return Err(ProgramError::LoadError { io_error: error, verifier_log: VerifierLog::new(text) });
        }
        log = vec![0; (log.len() * 10).clamp(FIRST_LOG, LONGEST_LOG)];
    }
}

/// Returns the data of a map, if it has a type that the programs use.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerfEventArray(data)
        | Map::ProgramArray(data)
        | Map::RingBuf(data)
        // aya has no type for `BPF_MAP_TYPE_TASK_STORAGE`.
        | Map::Unsupported(data) => Some(data),
        _ => None,
    }
}
