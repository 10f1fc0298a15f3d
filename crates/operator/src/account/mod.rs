//! Account: how storage is counted, and who may fill it (`docs/design.md` section 4).

pub mod gate;
