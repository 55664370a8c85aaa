#include "cli/page.h"

namespace evn::cli {
namespace {

// JSON in which nothing can end the element around it or begin another. These characters stand in its strings alone.
void append_escaped(std::string_view json, std::string* page) {
  for (const char c : json) {
    switch (c) {
      case '<': *page += "\\u003c"; break;
      case '>': *page += "\\u003e"; break;
      case '&': *page += "\\u0026"; break;
      default: *page += c;
    }
  }
}

}  // namespace

std::string make_page(std::string_view explanation, std::string_view trace) {
  std::string page(page_start());
  page += "{\"explanation\":";
  append_escaped(explanation, &page);
  page += ",\"trace\":";
  append_escaped(trace.empty() ? "null" : trace, &page);
  page += "}";
  page += page_end();
  return page;
}

}  // namespace evn::cli
