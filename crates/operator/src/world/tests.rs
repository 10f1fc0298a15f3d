//! Tests of the indexes.
