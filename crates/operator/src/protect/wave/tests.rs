//! Tests of the translations and the status builders.
