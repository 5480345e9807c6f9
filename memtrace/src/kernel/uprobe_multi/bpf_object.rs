//! The programs of the object that aya has loaded, made ready once more for the verifier.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::programs::ProgramError;
use aya_obj::{Object, ProgramSection, VerifierLog};

use crate::kernel::bpf_syscall::{self as call, Code, Info, Records};
use crate::kernel::error::KernelError;

/// The programs, leading to the very maps that aya has made.
pub(super) struct Image {
    object: Object,
    types: Option<OwnedFd>,
    /// The programs name their maps by these numbers, so they stay open.
    _maps: Vec<OwnedFd>,
}

/// The verifier is first given this much room for its words, then ten times as much, as often as it asks for more.
const FIRST_LOG: usize = 1 << 16;
const LONGEST_LOG: usize = 1 << 24;

impl Image {
    /// The programs of `bytes`, from which `ebpf` was loaded, with all of its maps.
    ///
    /// What is done is what `EbpfLoader::load` of aya does, but that it makes no maps.
    pub(super) fn new(bytes: &[u8], ebpf: &Ebpf) -> Result<Self, KernelError> {
        const ACTION: &str = "load the kernel half";
        let failed = |error: &(dyn std::error::Error + 'static)| KernelError::from_error(ACTION, error);
        let mut object = Object::parse(bytes).map_err(|error| failed(&error))?;
        let features = aya::features();
        let types = match features.btf() {
            Some(known) => object.fixup_and_sanitize_btf(known).map_err(|error| failed(&error))?,
            None => None,
        };
        let types = types.map(|types| call::load_types(&types.to_bytes())).transpose();
        let types =
            types.map_err(|error| KernelError::from_io(ACTION, error, String::from("its types are refused")))?;
        let definitions = std::mem::take(&mut object.maps);
        let mut maps = Vec::new();
        let mut places = Vec::new();
        for (name, definition) in &definitions {
            // A map that aya has not made is one that this kernel can do without.
            let Some(data) = ebpf.map(name).and_then(data) else { continue };
            let map = data.fd().as_fd().try_clone_to_owned();
            let map = map.map_err(|error| KernelError::from_io(ACTION, error, format!("{name} cannot be held")))?;
            places.push((name.as_str(), map.as_raw_fd(), definition));
            maps.push(map);
        }
        let sections: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
        object.relocate_maps(places.into_iter(), &sections).map_err(|error| failed(&error))?;
        object.relocate_calls(&sections).map_err(|error| failed(&error))?;
        object.sanitize_functions(features);
        Ok(Self { object, types, _maps: maps })
    }

    /// Has the program `name` verified and loaded; whether it runs at returns comes with it.
    pub(super) fn load(&self, name: &str) -> Result<(OwnedFd, bool), KernelError> {
        let missing = || KernelError::Failed {
            action: format!("use the program {name}"),
            reason: String::from("the kernel half does not have it"),
        };
        let program = self.object.programs.get(name).ok_or_else(missing)?;
        let function = self.object.functions.get(&program.function_key()).ok_or_else(missing)?;
        let at_return = match program.section {
            ProgramSection::UProbe { .. } => false,
            ProgramSection::URetProbe { .. } => true,
            _ => return Err(missing()),
        };
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let info = |types| Info {
            types,
            functions: Records { bytes: &functions, count: function.func_info.len() },
            lines: Records { bytes: &lines, count: function.line_info.len() },
        };
        let code = Code {
            name,
            license: &program.license,
            instructions: &function.instructions,
            info: self.types.as_ref().map(|types| info(types.as_fd())),
            together: true,
        };
        let loaded = load(&code).map_err(|error| KernelError::from_load(&format!("load the program {name}"), &error));
        Ok((loaded?, at_return))
    }
}

/// Asks the verifier for its words only when it has refused: they are long, and cost time.
fn load(code: &Code<'_>) -> Result<OwnedFd, ProgramError> {
    let mut log = Vec::new();
    loop {
        let error = match call::load_program(code, &mut log) {
            Ok(program) => return Ok(program),
            Err(error) => error,
        };
        let cut = error.raw_os_error() == Some(libc::ENOSPC) && log.len() < LONGEST_LOG;
        if !log.is_empty() && !cut {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let words = String::from_utf8_lossy(&log[..end]).into_owned();
            return Err(ProgramError::LoadError { io_error: error, verifier_log: VerifierLog::new(words) });
        }
        log = vec![0; (log.len() * 10).clamp(FIRST_LOG, LONGEST_LOG)];
    }
}

/// What is common to the kinds of map that the programs have.
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
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
