//! dmu
