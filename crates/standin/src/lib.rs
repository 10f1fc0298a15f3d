//! The S3 server of the stand-ins, for tests that list a real one in their own process.

pub mod s3;
