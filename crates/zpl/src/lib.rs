//! zpl
