"""What people have becomes items: arrays, sparse matrices, frames, dicts and files."""
