//! Chooses shuttle's primitives for this build of lockkeeper-core (`crates/core/src/sync.rs`).

fn main() {
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
    println!("cargo::rustc-check-cfg=cfg(shuttle)");
    println!("cargo::rustc-cfg=shuttle");
}
