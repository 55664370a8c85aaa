// The page of `evener explain --html`: one file that shows a placement in a browser and asks for nothing from elsewhere.
#pragma once

#include <string>
#include <string_view>

namespace evn::cli {

// What stands before and behind the data; cmake/embed_page.cmake makes them of the files in page/.
std::string_view page_start();
std::string_view page_end();

// The page. Both are JSON as the library gives it; `trace` is "" where nothing was run.
std::string make_page(std::string_view explanation, std::string_view trace);

}  // namespace evn::cli
