//! CuTe layout algebra: shapes, strides, layouts, swizzles, tilers.
