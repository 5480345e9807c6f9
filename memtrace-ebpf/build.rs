//! Sets `bpf_target_arch`, the processor whose registers the programs read, as aya-ebpf's build scripts do.

fn main() {
    if let Err(error) = aya_build::emit_bpf_target_arch_cfg() {
        println!("cargo::error={error}");
    }
}
