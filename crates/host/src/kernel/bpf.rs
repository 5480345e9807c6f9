//! The loaded BPF object: its maps, and the programs at tracepoints and perf events.

use aya::Ebpf;
use aya::maps::{ArrayOfMaps, Map, MapData};
use aya::programs::{Program, RawTracePoint, TracePoint};

use super::error::KernelError;
use super::mapped_ring::MappedRing;

/// BPF object with created maps. Its programs are loaded separately. Dropping this value detaches all programs.
pub(super) struct Bpf(Ebpf);

impl Bpf {
    pub(super) const fn new(ebpf: Ebpf) -> Self {
        Self(ebpf)
    }

    /// Loads the program `name` and attaches it to `tracepoint`.
    pub(super) fn attach_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), KernelError> {
        self.load_tracepoint(name, tracepoint)?;
        self.attach_loaded_tracepoint(name, tracepoint)
    }

    /// Loads the program `name`. An error names `tracepoint`.
    pub(super) fn load_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), KernelError> {
        let program: &mut RawTracePoint = self.program(name)?;
        program.load().map_err(|error| KernelError::from_load(&format!("attach to {tracepoint}"), &error))
    }

    /// Attaches the loaded program `name` to `tracepoint`.
    pub(super) fn attach_loaded_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), KernelError> {
        let program: &mut RawTracePoint = self.program(name)?;
        let attached = program.attach(tracepoint);
        attached.map(drop).map_err(|error| KernelError::from_error(&format!("attach to {tracepoint}"), &error))
    }

    /// Loads the program `name` of type tracepoint, which the kernel does not preempt, and attaches it to `tracepoint`.
    /// `category`: directory of the tracepoint in the events of tracefs, which has its number. Returns false if this
    /// fails, for example without tracefs. The caller then needs a raw program.
    pub(super) fn attach_unpreempted(&mut self, name: &str, category: &str, tracepoint: &str) -> bool {
        self.try_attach_unpreempted(name, category, tracepoint)
            .inspect_err(|error| log::info!("events can be missed, because their program can be preempted: {error}"))
            .is_ok()
    }

    fn try_attach_unpreempted(&mut self, name: &str, category: &str, tracepoint: &str) -> Result<(), KernelError> {
        let action = format!("attach to {category}:{tracepoint}");
        let program: &mut TracePoint = self.program(name)?;
        program.load().map_err(|error| KernelError::from_load(&action, &error))?;
        let attached = program.attach(category, tracepoint);
        attached.map(drop).map_err(|error| {
            // The program is not needed without its attach point. The error of the attachment is more useful than an error here.
            let _ = program.unload();
            KernelError::from_error(&action, &error)
        })
    }

    pub(super) fn program<'a, P>(&'a mut self, name: &str) -> Result<&'a mut P, KernelError>
    where
        &'a mut P: TryFrom<&'a mut Program>,
    {
        let program = self.0.program_mut(name).ok_or_else(|| KernelError::missing(name))?;
        program.try_into().map_err(|_| KernelError::missing(name))
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, &Program)> {
        self.0.programs()
    }

    pub(super) fn map(&self, name: &str) -> Option<&Map> {
        self.0.map(name)
    }

    pub(super) fn map_mut(&mut self, name: &str) -> Result<&mut Map, KernelError> {
        self.0.map_mut(name).ok_or_else(|| KernelError::missing(name))
    }

    pub(super) fn take_map(&mut self, name: &str) -> Result<Map, KernelError> {
        self.0.take_map(name).ok_or_else(|| KernelError::missing(name))
    }

    /// Takes the ring `name` out of the object. `action` is a verb phrase for the error, such as "read the activity".
    pub(super) fn take_ring(&mut self, name: &str, action: &str) -> Result<MappedRing, KernelError> {
        match self.take_map(name)? {
            Map::RingBuf(map) => MappedRing::new(map, action),
            _ => Err(KernelError::missing(name)),
        }
    }

    pub(super) fn rings(&mut self) -> Result<ArrayOfMaps<&mut MapData, MapData>, KernelError> {
        let map = self.map_mut("RINGS")?;
        map.try_into().map_err(|error| KernelError::from_error("use the rings", &error))
    }
}
