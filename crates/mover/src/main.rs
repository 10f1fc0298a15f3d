//! Work begins here.
fn main() {}
