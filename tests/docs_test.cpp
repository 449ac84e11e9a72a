// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Checks the documents: their C++ is compiled code, their tables name the existing keys, flags and
// directories, their numbers are right, and their links lead to existing files. PVM_SOURCE is the
// project's directory.

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/spec_keys.hpp>

#include "catch.hpp"

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path root = PVM_SOURCE;

Lines lines_of(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE(file.is_open());
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  for (const auto& line : lines_of(path)) text << line << '\n';
  return text.str();
}

std::vector<fs::path> documents() {
  std::vector<fs::path> paths = {root / "README.md", root / "CONTRIBUTING.md",
                                 root / "CHANGELOG.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  return paths;
}

/// The lines as one text, without their common indentation.
std::string dedented(const Lines& lines) {
  std::size_t indent = std::string::npos;
  for (const auto& line : lines) indent = std::min(indent, line.find_first_not_of(' '));
  std::string text;
  for (const auto& line : lines) text += (line.empty() ? line : line.substr(indent)) + "\n";
  return text;
}

/// The parts of a source file between `// [name]` and `// [/name]`.
std::set<std::string> marked_parts(const fs::path& path) {
  std::set<std::string> parts;
  Lines part;
  bool inside = false;
  const std::regex mark(R"(\s*// \[(/?)\w+\])");
  for (const auto& line : lines_of(path)) {
    std::smatch slash;
    if (!std::regex_match(line, slash, mark)) {
      if (inside) part.push_back(line);
    } else if (slash[1].length() > 0) {
      parts.insert(dedented(part));
      inside = false;
    } else {
      part.clear();
      inside = true;
    }
  }
  return parts;
}

/// The fenced code blocks of a document in `language`.
std::vector<std::string> blocks(const fs::path& path, const std::string& language) {
  std::vector<std::string> found;
  Lines block;
  bool inside = false;
  for (const auto& line : lines_of(path)) {
    if (line == "```" + language) {
      block.clear();
      inside = true;
    } else if (inside && line == "```") {
      found.push_back(dedented(block));
      inside = false;
    } else if (inside) {
      block.push_back(line);
    }
  }
  return found;
}

/// The table rows in the section `after` whose first cell is code (in backticks), as cells, by the
/// first cell.
std::map<std::string, Lines> rows(const fs::path& path, const std::string& after) {
  std::map<std::string, Lines> table;
  bool here = false;
  for (const auto& line : lines_of(path)) {
    if (line.starts_with("## ")) here = line == "## " + after;
    if (!here || !line.starts_with("| `")) continue;
    Lines cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) {
      const auto first = cell.find_first_not_of(' ');
      cells.push_back(first == std::string::npos
                          ? ""
                          : cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
    }
    const std::string key = cells.front().substr(1, cells.front().size() - 2);
    CHECK(table.emplace(key, cells).second);
  }
  return table;
}

template <class Keys>
std::set<std::string> as_set(const Keys& keys) {
  return {keys.begin(), keys.end()};
}

/// The anchors of a document's headings, as GitHub makes them.
std::set<std::string> anchors(const fs::path& path) {
  std::set<std::string> found;
  std::map<std::string, int> times;
  bool code = false;
  for (const auto& line : lines_of(path)) {
    if (line.starts_with("```")) code = !code;
    const std::size_t text = line.find_first_not_of('#');
    if (code || text == 0 || text == std::string::npos || line[text] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(text + 1)) {
      if (c == ' ') anchor += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    const int before = times[anchor]++;
    found.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
  }
  return found;
}

std::set<std::string> keys_of(const std::map<std::string, Lines>& table) {
  std::set<std::string> keys;
  for (const auto& [key, cells] : table) keys.insert(key);
  return keys;
}

}  // namespace

TEST_CASE("Every block of C++ in the documents is compiled code", "[docs]") {
  auto compiled = marked_parts(root / "examples/hello.cpp");
  compiled.merge(marked_parts(root / "examples/05_own_activation_and_kernel.cpp"));
  compiled.merge(marked_parts(root / "examples/06_own_source.cpp"));
  compiled.merge(marked_parts(root / "tests/snippets/snippets.cpp"));
  std::size_t count = 0;
  for (const auto& document : documents()) {
    for (const auto& block : blocks(document, "cpp")) {
      INFO(document << ":\n" << block);
      CHECK(compiled.count(block) == 1);
      ++count;
    }
  }
  CHECK(count >= compiled.size());
}

TEST_CASE("docs/spec.md names exactly the keys there are", "[docs]") {
  const auto document = root / "docs/spec.md";
  CHECK(keys_of(rows(document, "Keys")) == as_set(pvm::detail::effective_keys));
  CHECK(keys_of(rows(document, "Keys without effect")) == as_set(pvm::detail::ignored_keys));
}

TEST_CASE("docs/spec.md's defaults are the program's", "[docs]") {
  const auto table = rows(root / "docs/spec.md", "Keys");
  nlohmann::json needed = nlohmann::json::parse(text_of(root / "model_zoo/tiny.json"));
  for (const auto& [key, cells] : table) {
    if (cells.at(2) != "required") needed.erase(key);
  }
  const auto read =
      nlohmann::json::parse(pvm::to_json_text(pvm::parse_spec(needed.dump(), "the required keys")));
  for (const auto& [key, cells] : table) {
    INFO(key);
    if (cells.at(2) == "required") {
      auto without = needed;
      without.erase(key);
      CHECK_THROWS_AS(pvm::parse_spec(without.dump(), "one less"), pvm::Error);
    } else if (cells.at(2) == "none") {
      CHECK_FALSE(read.contains(key));
    } else {
      REQUIRE(read.contains(key));
      CHECK(read.at(key) == nlohmann::json::parse(cells.at(2)));
    }
  }
}

TEST_CASE("docs/design.md names exactly the directories there are, README.md some of them",
          "[docs]") {
  std::set<std::string> directories;
  for (const auto& entry : fs::recursive_directory_iterator(root / "include/pvm")) {
    if (entry.is_directory()) {
      directories.insert(fs::relative(entry.path(), root / "include/pvm").string() + "/");
    }
  }
  CHECK(keys_of(rows(root / "docs/design.md", "Directories")) == directories);
  const auto map = keys_of(rows(root / "README.md", "The map"));
  CHECK(map.size() > 5);
  for (const auto& directory : map) {
    INFO(directory);
    CHECK(directories.count(directory) == 1);
  }
}

TEST_CASE("docs/cli.md names exactly the flags there are", "[docs]") {
  const std::string source = text_of(root / "examples/pvm.cpp");
  std::set<std::string> flags;
  const std::regex declared(R"rx((?:add_option|add_flag|set_config)\(\s*"((?:-\w,)?--[a-z-]+)")rx");
  for (std::sregex_iterator i(source.begin(), source.end(), declared), end; i != end; ++i) {
    flags.insert((*i)[1]);
  }
  std::set<std::string> described;
  for (const auto& [flag, cells] : rows(root / "docs/cli.md", "Flags")) {
    described.insert(
        std::regex_replace(flag.substr(0, flag.find(' ', flag.find("--"))), std::regex(" "), ""));
  }
  CHECK(described == flags);
}

TEST_CASE("docs/trainer.md names exactly the members and the options there are", "[docs]") {
  // A member is declared on a line with two spaces before it, in the public part of the class.
  std::set<std::string> members, described;
  const std::regex member(R"(  (?:\[\[nodiscard\]\] )?[A-Za-z_:][\w:<>, ]*[ &]+(\w+)\(.*)");
  std::string part;
  for (const auto& line : lines_of(root / "include/pvm/train/trainer_base.hpp")) {
    if (line.starts_with("class TrainerBase")) part = "class";
    if (part == "class" && line == " public:") part = "public";
    if (part == "public" && line == " protected:") break;
    std::smatch name;
    if (part == "public" && std::regex_match(line, name, member)) members.insert(name[1]);
  }
  const std::regex call(R"((\w+)\()");
  for (const auto& [cell, cells] : rows(root / "docs/trainer.md", "Members")) {
    for (std::sregex_iterator i(cell.begin(), cell.end(), call), end; i != end; ++i) {
      described.insert((*i)[1]);
    }
  }
  CHECK(members.size() > 10);
  CHECK(described == members);

  std::set<std::string> options;
  bool inside = false;
  const std::regex option(R"(  [\w:<>]+\*? (\w+) = .*)");
  for (const auto& header : fs::recursive_directory_iterator(root / "include/pvm")) {
    if (!header.is_regular_file()) continue;
    for (const auto& line : lines_of(header.path())) {
      inside = line == "struct TrainerOptions {" || (inside && line != "};");
      std::smatch name;
      if (inside && std::regex_match(line, name, option)) options.insert(name[1]);
    }
  }
  CHECK(keys_of(rows(root / "docs/trainer.md", "TrainerOptions")) == options);
}

TEST_CASE("No include runs upwards", "[docs]") {
  // The rooms, each using only those before it. The three engines for GPUs do not know each other.
  const std::vector<std::string> rooms = {"core",
                                          "unit",
                                          "model",
                                          "engine",
                                          "engine/host",
                                          "engine/cuda/instructions",
                                          "engine/cuda/device",
                                          "engine/cuda/numbers",
                                          "engine/cuda/run",
                                          "engine/cuda/general",
                                          "engine/cuda/units",
                                          "engine/cuda/batch",
                                          "engine/cuda",
                                          "dist",
                                          "dist/mpi",
                                          "io",
                                          "io/gpu",
                                          "readout",
                                          "readout/gpu",
                                          "infer",
                                          "infer/gpu",
                                          "serve",
                                          "train",
                                          "view",
                                          ""};
  const std::vector<std::string> peers = {"engine/host", "engine/cuda/general", "engine/cuda/units",
                                          "engine/cuda/batch"};
  // They choose at run time what is further up.
  const std::vector<std::string> choosers = {"engine/choose.hpp", "engine/choose-inl.hpp",
                                             "infer/gpu_forwards.hpp", "io/open.hpp"};
  const auto has = [](const auto& list, const std::string& what) {
    return std::find(list.begin(), list.end(), what) != list.end();
  };
  const fs::path include = root / "include/pvm";
  const auto room_of = [&](const std::string& file) {
    std::string room = fs::path(file).parent_path().string();
    while (!has(rooms, room)) room = fs::path(room).parent_path().string();
    return std::find(rooms.begin(), rooms.end(), room) - rooms.begin();
  };
  const std::regex included(R"rx(#include <pvm/([^>]+)>)rx");
  int arrows = 0;
  for (const auto& entry : fs::recursive_directory_iterator(include)) {
    if (!entry.is_regular_file()) continue;
    const std::string file = fs::relative(entry.path(), include).string();
    if (has(choosers, file)) continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator i(text.begin(), text.end(), included), end; i != end; ++i) {
      const auto from = room_of(file), to = room_of((*i)[1]);
      INFO(file << " includes " << (*i)[1]);
      CHECK(to <= from);
      const bool both = has(peers, rooms[static_cast<std::size_t>(from)]) &&
                        has(peers, rooms[static_cast<std::size_t>(to)]);
      CHECK((from == to || !both));
      ++arrows;
    }
  }
  CHECK(arrows > 500);
}

TEST_CASE("Kernels are launched in one file, which gives them their shared memory", "[docs]") {
  // Elsewhere a limit might be raised for another file's handle of the kernel: reserve_shared.
  for (const auto& entry : fs::recursive_directory_iterator(root / "include/pvm")) {
    if (!entry.is_regular_file() || entry.path().filename() == "launch.hpp") continue;
    INFO(entry.path());
    const std::string text = text_of(entry.path());
    CHECK(text.find("cudaFuncSetAttribute(") == std::string::npos);
    CHECK(text.find("cudaLaunchCooperativeKernel(") == std::string::npos);
    CHECK(text.find("cudaLaunchKernel") == std::string::npos);
    CHECK(text.find("<<<") == std::string::npos);
  }
}

TEST_CASE("Links between the documents lead somewhere, to a heading too", "[docs]") {
  const std::regex link(R"(\]\(([^)#:]*)(#[^)]*)?\))");
  for (const auto& document : documents()) {
    const std::string text = text_of(document);
    for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i) {
      INFO(document << ": " << (*i)[0]);
      const std::string path = (*i)[1], heading = (*i)[2];
      const fs::path to = path.empty() ? document : document.parent_path() / path;
      REQUIRE(fs::exists(to));
      if (!heading.empty()) CHECK(anchors(to).count(heading.substr(1)) == 1);
    }
  }
}

TEST_CASE("The programs that commands in the documents run are built where they say", "[docs]") {
  // examples/first_steps.sh makes build/run with the examples only; presets make build/PRESET.
  const std::regex program(R"(build/(\w+)/(examples|bench|tests)/(\w+))");
  int found = 0;
  for (const auto& path : documents()) {
    const std::string text = text_of(path);
    for (std::sregex_iterator m(text.begin(), text.end(), program), none; m != none; ++m) {
      INFO(path.filename().string() << " runs " << m->str());
      ++found;
      const std::string where = (*m)[1], directory = (*m)[2], name = (*m)[3];
      CHECK(text_of(root / directory / "CMakeLists.txt").find(name) != std::string::npos);
      if (where == "run") {
        CHECK(directory == "examples");
      } else if (path.filename() != "CONTRIBUTING.md") {  // which says what presets are
        CHECK(text.find("cmake --preset " + where) != std::string::npos);
      }
    }
  }
  CHECK(found > 10);
}

TEST_CASE("docs/performance.md counts small.json right", "[docs]") {
  const auto net = pvm::make_connectome(pvm::load_spec(root / "model_zoo/small.json"));
  const auto millions = [](std::size_t weights) {
    std::ostringstream text;
    text.precision(1);
    text << std::fixed << static_cast<double>(weights) * 4e-6 << " MB";
    return text.str();
  };
  const std::string text = text_of(root / "docs/performance.md");
  const std::size_t w0 = net.units.front().w1;  // W1 begins where all of W0 ends
  INFO(millions(w0) << ", " << millions(net.weights - w0));
  CHECK(net.weights == 17'538'806);
  CHECK(text.find("17,538,806") != std::string::npos);
  CHECK(text.find(millions(w0)) != std::string::npos);
  CHECK(text.find(millions(net.weights - w0)) != std::string::npos);
}

/// The units of a network of the model zoo, as the plan of the engine that streams it has them on
/// an H200.
template <class Precision>
std::vector<pvm::detail::units::ProgramUnit> streamed_units(const char* name) {
  namespace units_engine = pvm::detail::units;
  const auto spec = pvm::load_spec(root / "model_zoo" / name);
  std::string why;
  const auto made = units_engine::Plan<Precision, 49, units_engine::Home::streamed>::make(
      spec, pvm::make_connectome(spec), 132, std::size_t{227} << 10, why);
  INFO(why);
  REQUIRE(made);
  const auto& plan = *made;
  std::vector<units_engine::ProgramUnit> units;
  for (const std::uint32_t start : plan.program_start) {
    units_engine::Program program;
    std::memcpy(&program, &plan.programs[start], sizeof program);
    for (std::uint32_t u = 0; u < program.unit_count; ++u) {
      const std::size_t at = start + program.units - program.start + u * sizeof units[0] / 4;
      std::memcpy(&units.emplace_back(), &plan.programs[at], sizeof units[0]);
    }
  }
  return units;
}

TEST_CASE("docs/engines.md counts the units whose past is in shared memory", "[docs]") {
  namespace units_engine = pvm::detail::units;
  const std::string text = text_of(root / "docs/engines.md");
  const auto count = []<class Precision>(const char* name) {
    const auto units = streamed_units<Precision>(name);
    const auto there =
        std::count_if(units.begin(), units.end(), [](const units_engine::ProgramUnit& unit) {
          return unit.history != units_engine::in_memory;
        });
    return std::pair{static_cast<std::size_t>(there), units.size()};
  };
  CHECK(text.find("for 1,432 of the 1,497 units of `large` in 16 bits and for 1,147 in fp32") !=
        std::string::npos);
  CHECK(count.operator()<pvm::bf16>("large.json") ==
        std::pair<std::size_t, std::size_t>{1432, 1497});
  CHECK(count.operator()<pvm::fp32>("large.json").first == 1147);
  for (const char* name : {"med.json", "very_deep.json"}) {
    const auto [there, units] = count.operator()<pvm::bf16>(name);
    CHECK(there == units);
  }
}

TEST_CASE("docs/engines.md counts in how many steps a unit folds", "[docs]") {
  namespace units_engine = pvm::detail::units;
  const auto units = streamed_units<pvm::bf16>("large.json");
  double phases = 0;
  for (const units_engine::ProgramUnit& unit : units) phases += std::popcount(unit.due_phases);
  std::ostringstream sentence;
  sentence.precision(2);
  sentence << "In `large` that is a unit in " << phases / static_cast<double>(units.size())
           << " of " << units_engine::Sizes<pvm::bf16, 49, units_engine::Home::streamed>::period
           << " steps.";
  INFO(sentence.str());
  CHECK(text_of(root / "docs/engines.md").find(sentence.str()) != std::string::npos);
}

TEST_CASE("docs/engines.md counts small.json right", "[docs]") {
  namespace units_engine = pvm::detail::units;
  const auto spec = pvm::load_spec(root / "model_zoo/small.json");
  // An H200: 132 multiprocessors, of each 227 KB of shared memory for a block of threads.
  constexpr std::size_t shared = std::size_t{227} << 10;
  const auto net = pvm::make_connectome(spec);
  std::string why;
  const auto made = units_engine::Plan<pvm::bf16, 49>::make(spec, net, 132, shared, why);
  const auto made_whole = units_engine::Plan<pvm::fp32, 49>::make(spec, net, 132, shared, why);
  INFO(why);
  REQUIRE(made);
  REQUIRE(made_whole);
  const auto& plan = *made;
  const auto& whole = *made_whole;
  const std::string text = text_of(root / "docs/engines.md");
  const auto has = [&](std::size_t number) {
    std::string digits = std::to_string(number);
    if (digits.size() > 3) digits.insert(digits.size() - 3, ",");
    INFO(digits);
    CHECK(text.find(" " + digits + " ") != std::string::npos);
  };
  const auto has_places = [&](const auto& of) {
    has(of.held);
    has(of.shared);
    has(of.streamed);
  };
  has_places(plan);
  has_places(whole);
  has(plan.w1_blocks);
  has(plan.blocks);
  // Of each word the low halves are read and written: eight bytes.
  const double megabytes =
      8e-6 * static_cast<double>(plan.weight_words()) / units_engine::Sizes<pvm::bf16, 49>::period;
  std::ostringstream moved;
  moved.precision(1);
  moved << std::fixed << megabytes << " MB";
  INFO(moved.str());
  CHECK(text.find(moved.str()) != std::string::npos);
}

TEST_CASE("The picture of batches is drawn from the rows of docs/performance.md", "[docs]") {
  std::multiset<std::string> rows;
  const std::regex row(
      R"(\| (\w+)(, eager)? \| (\w+) \| (\d+) \| ([\d,]+) \| (\d+) \| ([\d,]+) MB \|)");
  for (const auto& line : lines_of(root / "docs/performance.md")) {
    std::smatch cell;
    if (!std::regex_match(line, cell, row)) continue;
    std::string text;
    for (std::size_t i = 1; i < cell.size(); ++i) text += cell[i].str() + " ";
    rows.insert(std::regex_replace(text, std::regex("(\\d),"), "$1"));
  }
  std::multiset<std::string> drawn;
  for (const auto& r : nlohmann::json::parse(text_of(root / "bench/results/h200_batch.json"))) {
    std::string text = r["spec"].get<std::string>() + (r["eager"] ? " , eager " : "  ");
    text += r["precision"].get<std::string>() + " ";
    for (const char* key : {"batch", "frames_per_second", "us_per_step", "device_mb"}) {
      text += std::to_string(r[key].get<long>()) + " ";
    }
    drawn.insert(text);
  }
  CHECK(rows.size() >= 13);
  CHECK(rows == drawn);
}
