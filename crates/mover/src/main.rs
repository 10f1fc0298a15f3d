//! The program; everything is in the library.

fn main() -> std::process::ExitCode {
    holdfast_mover::main()
}
