// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "cosmology.h"
#include "particles.h"

namespace cola {
namespace {

constexpr int kAttempts = 100;  // at a free name for the temporary file

// An HDF5 identifier, closed with its own function.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void require(herr_t status) {
  if (status < 0) throw Error(ExitCode::output, "HDF5 could not build the result in memory.");
}

Handle made(hid_t id, herr_t (*close)(hid_t)) {
  require(id < 0 ? -1 : 0);
  return Handle(id, close);
}

void write_attribute(hid_t file, const char* name, hid_t type, hid_t space, const void* value) {
  const Handle attribute = made(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(H5Awrite(attribute, type, value));
}

void add(hid_t file, const char* name, double value) {
  const Handle space = made(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(file, name, H5T_NATIVE_DOUBLE, space, &value);
}

void add(hid_t file, const char* name, std::uint64_t value) {
  const Handle space = made(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(file, name, H5T_NATIVE_UINT64, space, &value);
}

void add(hid_t file, const char* name, int value) {
  const Handle space = made(H5Screate(H5S_SCALAR), H5Sclose);
  write_attribute(file, name, H5T_NATIVE_INT, space, &value);
}

void add(hid_t file, const char* name, const char* value) {
  const Handle space = made(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle type = made(H5Tcopy(H5T_C_S1), H5Tclose);
  require(H5Tset_size(type, std::strlen(value)));
  require(H5Tset_strpad(type, H5T_STR_NULLPAD));
  write_attribute(file, name, type, space, value);
}

void add(hid_t file, const char* name, std::span<const double> values) {
  const hsize_t size = values.size();
  const Handle space = made(H5Screate_simple(1, &size, nullptr), H5Sclose);
  write_attribute(file, name, H5T_NATIVE_DOUBLE, space, values.data());
}

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }
  // Where the file system reports a failed write late, it does so here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool write_all(int fd, const std::vector<unsigned char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  throw Error(ExitCode::output,
              "cannot " + std::string(what) + " " + path + ": " + std::strerror(error) + ".");
}

}  // namespace

const char* version() {
  return COLA_VERSION;
}

std::vector<unsigned char> density_file_image(const UniverseSpec& spec, const Cubes& cubes) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // failures are reported by our own sentence
  const Handle access = made(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  require(H5Pset_fapl_core(access, std::size_t{1} << 20, false));
  const Handle creation = made(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  require(H5Pset_obj_track_times(creation, false));
  const Handle file = made(H5Fcreate("universe", H5F_ACC_TRUNC, creation, access), H5Fclose);

  const auto cells = static_cast<hsize_t>(spec.cells);
  const hsize_t shape[4] = {spec.redshifts.size(), cells, cells, cells};
  const Handle space = made(H5Screate_simple(4, shape, nullptr), H5Sclose);
  const Handle options = made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  require(H5Pset_obj_track_times(options, false));
  const bool counts = std::holds_alternative<std::vector<std::uint16_t>>(cubes);
  const hid_t type = counts ? H5T_NATIVE_UINT16 : H5T_NATIVE_FLOAT;
  {
    const Handle dataset =
        made(H5Dcreate2(file, "density", type, space, H5P_DEFAULT, options, H5P_DEFAULT), H5Dclose);
    const void* values = std::visit([](const auto& v) { return static_cast<const void*>(v.data()); }, cubes);
    require(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
  }
  const Cosmology& c = spec.cosmology;
  add(file, "omega_m", c.omega_m);
  add(file, "sigma_8", c.sigma_8);
  add(file, "n_s", c.n_s);
  add(file, "h", c.h);
  add(file, "omega_b", c.omega_b);
  add(file, "box_mpc_h", spec.box);
  add(file, "redshifts", std::span<const double>(spec.redshifts));
  add(file, "seed", spec.seed);
  add(file, "index", spec.index);
  add(file, "noise_seed", universe_seed(spec.seed, spec.index));
  add(file, "particles", spec.particles);
  add(file, "mesh", spec.mesh_or_default());
  add(file, "cells", spec.cells);
  add(file, "steps", spec.steps);
  add(file, "mean_particles", std::pow(static_cast<double>(spec.particles) / spec.cells, 3));
  add(file, "assign", counts ? "ngp" : "cic");
  add(file, "generator", "wflow-cola");
  add(file, "version", version());

  require(H5Fflush(file, H5F_SCOPE_GLOBAL));
  const ssize_t size = H5Fget_file_image(file, nullptr, 0);
  if (size <= 0) require(-1);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(size));
  if (H5Fget_file_image(file, bytes.data(), bytes.size()) != size) require(-1);
  return bytes;
}

void write_file_durably(const std::string& path, const std::vector<unsigned char>& bytes) {
  namespace fs = std::filesystem;
  const fs::path target(path);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ExitCode::output, "cannot make folder " + folder.string() + ": " + error.message() + ".");
  if (fs::is_directory(target, error)) throw Error(ExitCode::output, path + " is a folder, not a file.");

  // O_EXCL: a retry on another machine may be writing the same universe to this shared folder.
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    fs::path hidden(".");
    hidden += target.filename();
    for (const long part : {static_cast<long>(::getpid()), static_cast<long>(attempt)}) {
      hidden += ".";
      hidden += std::to_string(part);
    }
    hidden += ".tmp";
    temporary = (folder / hidden).string();
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) break;
  }
  OpenFile file(fd);
  if (file.get() < 0) fail(temporary, "create");
  if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0 || !file.close() ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail(path, "write");
  }
  // The rename itself is durable once the folder is; a file system that cannot sync a folder is left alone.
  const OpenFile opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() >= 0) (void)::fsync(opened.get());
}

}  // namespace cola
