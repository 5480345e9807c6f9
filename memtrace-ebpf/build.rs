//! Sets `bpf_target_arch`: the programs read the registers of this processor. aya-ebpf's build scripts do the same.

fn main() {
    if let Err(error) = aya_build::emit_bpf_target_arch_cfg() {
        println!("cargo::error={error}");
    }
}
