// The command line: which options a command takes, and what was given.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evn::cli {

struct Option {
  const char* name;   // "--config"
  const char* value;  // what stands for its value in the help, or nullptr for a switch
  const char* help;   // lines split by '\n'
  bool repeated = false;
};

struct Command;

// What a command was called with.
class Arguments {
 public:
  // Throws a usage Failure. `words` are those after the command's name.
  Arguments(const Command& command, std::span<const char* const> words);

  bool has(std::string_view name) const { return !all(name).empty(); }
  // The value of an option, or nullptr when it was not given.
  const char* get(std::string_view name) const;
  // Each value of an option that may be repeated.
  std::vector<std::string> all(std::string_view name) const;
  const std::string& operand(std::size_t index) const { return operands_.at(index); }
  std::size_t operand_count() const { return operands_.size(); }
  bool wants_help() const { return help_; }

 private:
  struct Given {
    std::string_view name;
    const char* value;
  };
  std::size_t take_option(const Command& command, std::span<const char* const> words, std::size_t i);

  std::vector<Given> given_;
  std::vector<std::string> operands_;
  bool help_ = false;
};

struct Command {
  const char* name;
  const char* operand;  // its one operand in the help, in brackets where it may be left out, or nullptr
  const char* summary;
  const char* details;  // paragraphs for its own help
  std::span<const Option> options;
  int (*run)(const Arguments&);
};

// A whole decimal number from min to max; throws a usage Failure that names `what`.
int parse_count(const char* what, std::string_view text, int min, int max);

// The number that an option gives, from least to most; 0 where the option is not given. Throws a usage Failure.
double number_of(const Arguments& arguments, const char* option, double least, double most);

// The place of an option's word in a list of words, 0 where the option is not given. Throws a usage Failure that has the list.
std::size_t choice_of(const Arguments& arguments, const char* option, std::span<const std::string_view> words);

// "NAME=VALUE" split at its last '=': names of model inputs may have one.
std::pair<std::string, std::string> parse_assignment(const char* option, const std::string& text);

}  // namespace evn::cli
