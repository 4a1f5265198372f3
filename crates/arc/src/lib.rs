//! arc
