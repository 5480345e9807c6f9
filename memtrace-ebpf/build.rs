//! Says for which machine's registers the programs are built, as aya-ebpf's own build scripts do.

fn main() {
    if let Err(error) = aya_build::emit_bpf_target_arch_cfg() {
        println!("cargo::error={error}");
    }
}
